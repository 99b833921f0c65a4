"""A configuration for a cluster, fitted to one machine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.serve.exceptions import RayServeException

from pilotfish.config import Config, load_config
from pilotfish.errors import ConfigError, UnavailableError
from pilotfish.pools.options import gpus_per_replica
from pilotfish.serve_app import local
from pilotfish.serve_app.local import for_this_machine

ON_GPU = ("target.engine.device=cuda", "draft.engine.device=cuda", "draft.proposer=model", "draft.num_replicas=2")


def config(*overrides: str) -> Config:
    return load_config(overrides=list(overrides))


def test_replicas_share_the_gpus_there_are() -> None:
    assert gpus_per_replica(for_this_machine(config(*ON_GPU), 8), "target") == 1.0
    shared = for_this_machine(config(*ON_GPU), 1)
    assert gpus_per_replica(shared, "target") == 0.33
    assert gpus_per_replica(shared, "draft") == 0.33
    with pytest.raises(ConfigError, match="no GPU"):
        for_this_machine(config(*ON_GPU), 0)


def test_the_machine_is_a_node_of_every_pool() -> None:
    fitted = for_this_machine(
        config(
            "deployment.target.labels={pool: target}",
            "deployment.draft.resources={fish: 1}",
            "deployment.draft.num_gpus=0.5",
            "orchestrator.num_replicas=3",
        ),
        1,
    )
    assert not fitted.deployment.target.labels
    assert not fitted.deployment.draft.resources
    assert fitted.deployment.draft.num_gpus == 0.5
    assert fitted.orchestrator.num_replicas == 1, "there is one public port"


class FakeRay:
    """A Ray that cannot start, or a Serve on it that can do nothing."""

    def init(self, **_options: Any) -> None:
        raise Exception("The current node timed out during startup.\nThis could happen because...")

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 4}


class FakeServe:
    """Its start is done, and nothing else."""

    def start(self, **_options: Any) -> None: ...

    def delete(self, name: str, **_options: Any) -> None: ...

    def status(self) -> Any:
        return SimpleNamespace(applications={})

    def run_many(self, *_targets: Any, **_options: Any) -> None:
        raise RayServeException("Controller is overloaded")

    def shutdown(self) -> None:
        raise TimeoutError("Shutdown took too long")

    RunTarget = SimpleNamespace


class DrainingServe(FakeServe):
    """Its replicas take a while to finish what is open."""

    def __init__(self) -> None:
        self.num_looks = 0
        self.is_over = False

    def run_many(self, *_targets: Any, **_options: Any) -> None: ...

    def status(self) -> Any:
        self.num_looks += 1
        return SimpleNamespace(applications={local.APPLICATION: None} if self.num_looks < 5 else {})

    def shutdown(self) -> None:
        assert self.num_looks == 5, "it would kill them"
        self.is_over = True


def test_replicas_finish_what_is_open_before_serve_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    draining = DrainingServe()
    monkeypatch.setattr(local, "ray", FakeRay())
    monkeypatch.setattr(local, "serve", draining)
    monkeypatch.setattr(local, "START_INTERVAL_S", 0)
    with local.running(config()):
        pass
    assert draining.is_over


def test_a_ray_that_does_not_start_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local, "ray", FakeRay())
    expected = (
        "Ray could not start on this machine: The current node timed out during startup. A machine .*without --ray"
    )
    with pytest.raises(UnavailableError, match=expected), local.private_ray(tmp_path):
        pass


def test_why_nothing_was_deployed_is_told_though_the_end_fails_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "ray", FakeRay())
    monkeypatch.setattr(local, "serve", FakeServe())
    with (
        pytest.raises(UnavailableError, match="deploy the services: Controller is overloaded"),
        local.running(config()),
    ):
        pass
