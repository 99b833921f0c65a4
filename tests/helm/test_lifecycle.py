"""Real Helm, both majors, against a validating stand-in: install, test, upgrade, roll back, uninstall."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes.schemas import checker, custom_resources
from tests.support.kubernetes.server import KubernetesApi, kubernetes_api

CHART = Path(__file__).parents[2] / "helm" / "pilotfish"
EARLIER_CHART = Path(__file__).parent / "pilotfish-0.0.9"
"""The chart as it was first committed (ce0e685), before values were ordered by pools. It was never released."""
NAMESPACE = ("--namespace", "default")


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    folder = os.environ.get("PILOTFISH_CRD_DIR")
    with kubernetes_api(checker("1.34", custom_resources(Path(folder)) if folder else None)) as server:
        yield server


class Release:
    """A release named `r` on an API server, driven by one major of Helm."""

    def __init__(self, helm: Any, major: str, api: KubernetesApi) -> None:
        self._helm, self._major, self._api = helm, major, api
        # Helm 3 waits by listing ReplicaSets, which only real controllers make.
        self._wait = ["--wait", "--timeout", "30s"] if major == "helm4" else []

    def run(self, command: str, *arguments: str, waits: bool = True) -> str:
        """The command's output. Fails the test unless it succeeds."""
        done = self.attempt(command, *arguments, *(self._wait if waits else []))
        assert done.returncode == 0, f"{command}: {done.stderr or done.stdout}"
        return str(done.stdout)

    def attempt(self, command: str, *arguments: str) -> Any:
        return self._helm.run(self._major, command, "r", *arguments, *NAMESPACE, api=self._api)

    def deployment(self, name: str) -> dict[str, Any]:
        return self._api.store.all()["Deployment", name]

    @property
    def kinds(self) -> set[str]:
        """Of the objects there are, but for Helm's own records."""
        return {kind for kind, name in self._api.store.all() if not name.startswith("sh.helm.release")}


@pytest.fixture
def release(helm: Any, api: KubernetesApi, major: str) -> Release:
    return Release(helm, major, api)


def test_life_of_a_release(release: Release) -> None:
    release.run("install", str(CHART))
    assert release.deployment("r-pilotfish-target")["spec"]["replicas"] == 1
    assert "Phase:          Succeeded" in release.run("test", waits=False)
    release.run("upgrade", str(CHART), "--set", "pools.target.replicas=3")
    assert release.deployment("r-pilotfish-target")["spec"]["replicas"] == 3
    refused = release.attempt("upgrade", str(CHART), "--set", "pools.target.replicas=many")
    assert "replicas" in refused.stderr
    release.run("rollback", "1")
    assert release.deployment("r-pilotfish-target")["spec"]["replicas"] == 1
    release.run("uninstall")
    assert release.kinds <= {"Namespace", "Pod"}, "the test's pod stays for its log"


def test_life_of_a_ray_service(release: Release) -> None:
    values = ["--values", str(CHART / "ci" / "rayservice-values.yaml")]
    release.run("install", str(CHART), *values, waits=False)
    assert {"RayService", "Service", "ServiceAccount"} <= release.kinds
    assert "Deployment" not in release.kinds
    release.run("upgrade", str(CHART), *values, "--set", "pools.draft.replicas=2", waits=False)
    release.run("rollback", "1", waits=False)
    release.run("uninstall")
    assert "RayService" not in release.kinds


def test_upgrade_from_the_chart_before(release: Release) -> None:
    old = ["--set", "target.replicas=2,linkTokenSecret=mine"]
    release.run("install", str(EARLIER_CHART), *old)
    selector = release.deployment("r-pilotfish-target")["spec"]["selector"]
    refused = release.attempt("upgrade", str(CHART), "--reset-values", *old)
    assert "use security.internal.token.existingSecret instead" in refused.stderr
    assert "use pools.target instead" in refused.stderr
    new = ["--set", "pools.target.replicas=2,security.internal.token.existingSecret=mine"]
    release.run("upgrade", str(CHART), "--reset-values", *new)
    upgraded = release.deployment("r-pilotfish-target")["spec"]
    assert upgraded["selector"] == selector, "Kubernetes would refuse another"
    assert upgraded["replicas"] == 2
    release.run("rollback", "1")
    assert "startupProbe" not in release.deployment("r-pilotfish-target")["spec"]["template"]["spec"]["containers"][0]


def test_an_object_that_kubernetes_refuses_is_refused(release: Release) -> None:
    """The stand-in is no rubber stamp."""
    broken = ["--set-json", 'pools.target.resources={"request":{"cpu":"1"}}']
    assert "request" in release.attempt("install", str(CHART), *broken).stderr
