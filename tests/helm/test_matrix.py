"""Whatever the values: both majors of Helm agree, Kubernetes and the operators accept it, and Pilotfish reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pilotfish.config import Config, config_from_yaml
from pilotfish.testing.kubernetes.schemas import CustomResources, check_built_in, is_built_in

CHART = Path(__file__).parents[2] / "helm" / "pilotfish"
KUBERNETES_VERSIONS = ("1.28", "1.32", "1.34", "1.37")


def config_of(objects: list[dict[str, Any]]) -> Config:
    """What the services are started with. Raises ConfigError for what they would refuse."""
    for each in objects:
        if each["kind"] == "ConfigMap" and "config.yaml" in each.get("data", {}):
            return config_from_yaml(each["data"]["config.yaml"])
        if each["kind"] == "RayService":
            application = yaml.safe_load(each["spec"]["serveConfigV2"])["applications"][0]
            return config_from_yaml(yaml.safe_dump(application["args"]))
    raise AssertionError("no configuration was rendered")


def test_lint(helm: Any, arguments_of: Callable[..., list[str]], case: str, extras: bool, major: str) -> None:
    done = helm.run(major, "lint", "--strict", str(CHART), *arguments_of(case, extras))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 chart(s) failed" in done.stdout


def test_both_majors_render_the_same(helm: Any, case: str, extras: bool) -> None:
    assert helm.objects(case, extras, "helm4") == helm.objects(case, extras, "helm3")


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_kubernetes_accepts_it(helm: Any, case: str, extras: bool, version: str) -> None:
    objects = [each for each in helm.objects(case, extras, "helm4") if is_built_in(each)]
    assert objects
    for each in objects:
        check_built_in(each, version)


def test_operators_accept_it(helm: Any, crd_schemas: CustomResources, case: str, extras: bool) -> None:
    for each in helm.objects(case, extras, "helm4"):
        if not is_built_in(each):
            crd_schemas.check(each)


def test_pilotfish_reads_the_configuration(helm: Any, case: str, extras: bool) -> None:
    config = config_of(helm.objects(case, extras, "helm4"))
    assert config.target.host == "0.0.0.0"
    assert config.security.internal.is_authenticated or config.security.internal.allow_unauthenticated
    assert config.security.public.uses_tls is extras


def test_names_are_unique_and_in_the_namespace(helm: Any, case: str, extras: bool) -> None:
    objects = helm.objects(case, extras, "helm4")
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(names) == len(set(names))
    own = [each for each in objects if each["metadata"]["name"].startswith("pilotfish") and "-more" not in str(each)]
    assert {
        each["metadata"].get("namespace") for each in own if "helm.sh/chart" in each["metadata"].get("labels", {})
    } == {"llm"}


def test_serve_knows_every_key(helm: Any, extras: bool) -> None:
    """Serve's own schema lets unknown keys of deployments pass."""
    schema = pytest.importorskip("ray.serve.schema")
    for case in ("rayservice", "rayservice-gpu"):
        (service,) = (each for each in helm.objects(case, extras, "helm4") if each["kind"] == "RayService")
        values = yaml.safe_load(service["spec"]["serveConfigV2"])
        parsed = schema.ServeDeploySchema.model_validate(values)
        assert set(values) <= set(schema.ServeDeploySchema.model_fields)
        assert set(values["http_options"]) <= set(schema.HTTPOptionsSchema.model_fields)
        for application in values["applications"]:
            assert set(application) <= set(schema.ServeApplicationSchema.model_fields)
        assert parsed.applications[0].import_path == "pilotfish.serve_app:build"
