"""Whatever the values: both majors of Helm agree, Kubernetes and the operators accept it, and Pilotfish reads it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pilotfish.config import Config, config_from_dict, config_from_yaml
from pilotfish.pools.options import serve_file
from tests.helm.conftest import CASES, MAJORS, only, value_files
from tests.support.kubernetes_schemas import CustomResources, check_built_in, is_built_in
from tests.support.serve_schema import unknown_keys

CHART = Path(__file__).parents[2] / "helm" / "pilotfish"
KUBERNETES_VERSIONS = ("1.28", "1.37")
"""The oldest and the newest that the chart is for."""


def configs_of(objects: list[dict[str, Any]]) -> list[Config]:
    """What the services are started with. Raises ConfigError for what they would refuse."""
    for each in objects:
        if each["kind"] == "ConfigMap" and "config.yaml" in each.get("data", {}):
            return [config_from_yaml(each["data"]["config.yaml"])]
        if each["kind"] == "RayService":
            return [config_from_dict(application["args"]) for application in serve_file_of(each)["applications"]]
    raise AssertionError("no configuration was rendered")


def serve_file_of(ray_service: dict[str, Any]) -> dict[str, Any]:
    return dict(yaml.safe_load(ray_service["spec"]["serveConfigV2"]))


def test_lint(helm: Any, case: str) -> None:
    major = MAJORS[CASES.index(case) % 2]  # each has every second one: both render the same
    done = helm.run(major, "lint", "--strict", str(CHART), *value_files(case, True))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 chart(s) failed" in done.stdout


def test_both_majors_render_the_same(helm: Any, case: str) -> None:
    assert helm.objects(case, True, "helm4") == helm.objects(case, True, "helm3")


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_kubernetes_accepts_it(helm: Any, case: str, extras: bool, version: str) -> None:
    objects = [each for each in helm.objects(case, extras, "helm4") if is_built_in(each)]
    assert objects
    for each in objects:
        check_built_in(each, version)


def test_kubernetes_refuses_a_misspelt_field(helm: Any) -> None:
    broken = helm.template("--set-json", 'pools.target.resources={"request":{"cpu":"1"}}')
    (target,) = (
        each for each in broken if each["metadata"]["name"] == "pilotfish-target" and "replicas" in each["spec"]
    )
    with pytest.raises(ValueError, match="request"):
        check_built_in(target, KUBERNETES_VERSIONS[-1])


def test_operators_accept_it(helm: Any, crd_schemas: CustomResources, case: str, extras: bool) -> None:
    for each in helm.objects(case, extras, "helm4"):
        if not is_built_in(each):
            crd_schemas.check(each)


def test_pilotfish_reads_the_configuration(helm: Any, case: str, extras: bool) -> None:
    configs = configs_of(helm.objects(case, extras, "helm4"))
    for config in configs:
        assert config.target.host == config.draft.host == "0.0.0.0"
        assert config.security.internal.is_authenticated or config.security.internal.allow_unauthenticated
    assert configs[-1].security.public.uses_tls is extras


def test_an_orchestrator_may_stop_at_once(helm: Any) -> None:
    objects = helm.template(*value_files("rayservice", False), "--set", "config.deployment.orchestrator.drain_s=0")
    assert configs_of(objects)[-1].deployment.orchestrator.drain_s == 0


def test_names_are_unique_and_in_the_namespace(helm: Any, case: str, extras: bool) -> None:
    objects = helm.objects(case, extras, "helm4")
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(names) == len(set(names))
    own = [each for each in objects if each["metadata"]["name"].startswith("pilotfish") and "-more" not in str(each)]
    assert {
        each["metadata"].get("namespace") for each in own if "helm.sh/chart" in each["metadata"].get("labels", {})
    } == {"llm"}


@pytest.mark.parametrize("values", ["rayservice", "rayservice-gpu"])
def test_serve_knows_every_key(helm: Any, extras: bool, values: str) -> None:
    """Serve reads a file without the keys that it does not know."""
    assert unknown_keys(serve_file_of(only(helm.objects(values, extras, "helm4"), "RayService"))) == []


def test_serve_is_told_what_pilotfish_would_tell_it(helm: Any) -> None:
    """`pilotfish config --serve` and the chart agree on every pool's placement, scaling and arguments."""
    service = only(helm.objects("rayservice-gpu", False, "helm4"), "RayService")
    applications = serve_file_of(service)["applications"]
    arguments = {application["name"]: application["args"] for application in applications}
    scaling = {"target": (1, 2, 48.0), "draft": (1, 3, 64.0)}
    pools = {
        pool: {
            "labels": {"pilotfish-pool": pool},
            "autoscaling": dict(zip(("min_replicas", "max_replicas", "target_sequences"), bounds, strict=True)),
        }
        for pool, bounds in scaling.items()
    }
    config = config_from_dict(
        {
            **arguments["pilotfish"],
            **{pool: arguments[f"pilotfish-{pool}"][pool] for pool in scaling},
            "orchestrator": {**arguments["pilotfish"]["orchestrator"], "num_replicas": 2},
            "deployment": {**pools, "orchestrator": {"labels": {"pilotfish-pool": "orchestrator"}}},
        }
    )
    expected = serve_file(config)["applications"]
    assert [each["deployments"] for each in applications] == [each["deployments"] for each in expected]
    assert [each["import_path"] for each in applications] == [each["import_path"] for each in expected]
    assert [each["name"] for each in applications] == [each["name"] for each in expected]
    for ours, theirs in zip(applications, expected, strict=True):
        assert config_from_dict(ours["args"]) == config_from_dict(theirs["args"])
