"""What Serve says of a deployment, in one line."""

from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayError
from ray.serve.schema import ApplicationStatus, DeploymentStatus

from pilotfish.errors import UnavailableError
from pilotfish.serve_app import reporter
from pilotfish.serve_app.reporter import APPLICATION, Reporter


class FakeServe:
    """Serve with one target, as the test says it is."""

    def __init__(self) -> None:
        self.state = DeploymentStatus.HEALTHY
        self.is_gone = False
        self.has_controller = True

    def status(self) -> Any:
        if not self.has_controller:
            raise RayError("The actor died unexpectedly.\n\tclass_name: ServeController")
        deployment = SimpleNamespace(status=self.state, message="")
        running = SimpleNamespace(status=ApplicationStatus.RUNNING, message="", deployments={"target": deployment})
        return SimpleNamespace(applications={APPLICATION: running})

    def get_deployment_handle(self, name: str, application: str) -> Any:
        return SimpleNamespace(describe=self)

    def remote(self) -> Any:
        return self

    def result(self, timeout_s: float) -> dict[str, str]:
        if self.is_gone:
            raise RayError
        return {"address": "h:1", "detail": "d"}


def test_a_replica_that_is_lost_while_it_is_asked_is_told_of_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakeServe()
    monkeypatch.setattr(reporter, "serve", fake)
    told = Reporter()
    fake.is_gone = True
    told.poll()
    assert capsys.readouterr().out == ""
    fake.is_gone = False
    told.poll()
    told.poll()
    assert capsys.readouterr().out == "target_service ready on h:1 (d)\n"


def test_a_lost_controller_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeServe()
    fake.has_controller = False
    monkeypatch.setattr(reporter, "serve", fake)
    with pytest.raises(
        UnavailableError, match=r"could not say how the services are: The actor died unexpectedly\. A machine"
    ):
        Reporter().poll()
