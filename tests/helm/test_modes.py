"""Which values of a pool count in which mode: as their comments say, and pods are replaced as the pages say."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pytest
import yaml

from tests.helm.conftest import CHART, ROOT, Objects, only

TEXT = (CHART / "values.yaml").read_text(encoding="utf-8")
VALUES = yaml.safe_load(TEXT)
COMMENTS = dict(re.findall(r"## @param (\S+) (?:\[\w+\] )?(.*)", TEXT))
ELSEWHERE = {"enabled", "gpus", "nodeGpus"}
"""What other tests are about: these decide whether the values are accepted."""
SPECIAL = {"strategy": {"type": "Recreate", "changed": "yes"}, "type": "NodePort", "extraArgs": ["--changed"]}


def leaves(section: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in section.items():
        if ".".join(("pools", *path, key)) in COMMENTS:
            yield (*path, key)
        else:
            yield from leaves(value, (*path, key))


def changed(path: tuple[str, ...]) -> Any:
    value: Any = VALUES["pools"]
    for key in path:
        value = value[key]
    match value:
        case _ if path[-1] in SPECIAL:
            return SPECIAL[path[-1]]
        case bool():
            return not value
        case int() | None:
            return (value or 0) + 1
        case str():
            return "7Gi" if path[-1] == "shmSize" else "changed"
        case list():
            return [{"name": "changed"}]
        case _:
            return {"changed": "yes"}


def only_in_deployments(path: tuple[str, ...]) -> bool:
    """By its own comment, or by that of the switch of its section."""
    own, switch = (COMMENTS[".".join(("pools", *each))] for each in (path, (path[0], "autoscaling", "enabled")))
    said = f"{own} {switch}" if "autoscaling" in path else own
    return "mode deployments" in said or (own.startswith(("`hpa`", "`keda`:")) and "Ray" not in own)


@pytest.mark.parametrize("pool", ["orchestrator", "draft", "target"])
def test_values_that_ray_does_not_heed_say_so(helm: Any, pool: str) -> None:
    render = lru_cache(maxsize=None)(lambda *options: helm.template(*options))

    def counts(path: tuple[str, ...], mode: str) -> bool:
        """Whether another value changes an object."""
        scales = "autoscaling" in path
        if scales and (mode, pool) == ("rayservice", "orchestrator"):
            return False  # refused
        name = ".".join(("pools", *path))
        for kind in ("hpa", "keda") if scales and mode == "deployments" else ("hpa",):
            base = {f"pools.{pool}.autoscaling": {"enabled": scales, "type": kind}, "mode": mode}
            options = [word for key, value in base.items() for word in ("--set-json", f"{key}={json.dumps(value)}")]
            if render(*options) != helm.template(*options, "--set-json", f"{name}={json.dumps(changed(path))}"):
                return True
        return False

    for path in leaves({pool: VALUES["pools"][pool]}):
        if path[-1] not in ELSEWHERE and path[-2:] != ("autoscaling", "type"):
            assert counts(path, "deployments"), path
            assert counts(path, "rayservice") != only_in_deployments(path), path


def strategies(objects: Objects) -> dict[str, dict[str, Any]]:
    return {
        each["metadata"]["name"].removeprefix("pilotfish-"): each["spec"]["strategy"]
        for each in objects
        if each["kind"] == "Deployment"
    }


def test_pods_are_replaced_as_the_page_says(helm: Any) -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    assert "`Recreate`" in page
    assert "`RollingUpdate` with `maxSurge: 0`" in page
    found = strategies(helm.objects("gpu", False, "helm4"))
    assert found["target"] == {"type": "Recreate"}
    assert (found["draft"]["type"], found["draft"]["rollingUpdate"]["maxSurge"]) == ("RollingUpdate", 0)
    how_to = (ROOT / "docs" / "how-to" / "upgrade.md").read_text(encoding="utf-8")
    (rolling,) = re.findall(r"    strategy: (\{.*\}\})", how_to)
    value = f"pools.target.strategy={json.dumps(yaml.safe_load(rolling))}"
    assert strategies(helm.template("--set-json", value))["target"] == yaml.safe_load(rolling)


def test_a_pool_can_be_recreated_though_it_rolls_by_default(helm: Any) -> None:
    """Kubernetes refuses the one with what belongs to the other."""
    found = strategies(helm.template("--set", "pools.draft.strategy.type=Recreate"))
    assert found["draft"] == {"type": "Recreate"}


def test_orchestrators_do_not_scale_under_ray(helm: Any) -> None:
    scales = "mode=rayservice,pools.orchestrator.autoscaling.enabled=true"
    assert "works in mode deployments" in helm.refusal("--set", scales)
    service = only(helm.template("--set", "mode=rayservice,pools.draft.autoscaling.enabled=true"), "RayService")
    applications = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    scaled = {each["name"] for each in applications if "autoscaling_config" in each["deployments"][0]}
    assert scaled == {"pilotfish-draft"}
