"""Values that cannot work are refused before anything is installed, in words that say what to change."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pilotfish.config import config_from_yaml
from tests.helm.conftest import only

CHART = Path(__file__).parents[2] / "helm" / "pilotfish"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
OPEN = {
    ("global",),
    ("podSecurityContext",),
    ("securityContext",),
    *((*path, key) for path in (("pools", "*"), ("ray", "head"), ("trainer",)) for key in ("resources", "affinity")),
    *(("pools", "*", key) for key in ("strategy",)),
    ("pools", "*", "autoscaling", "behavior"),
}
"""Kubernetes' own objects: the API server knows their keys."""
MAPS = {"labels", "annotations", "nodeSelector", "podAnnotations", "podLabels", "commonLabels", "commonAnnotations"}


def sections(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every mapping in the values whose keys are the chart's own."""
    yield path
    for key, value in values.items():
        below = (*path, key)
        general = tuple("*" if path and path[0] == "pools" and index == 1 else part for index, part in enumerate(below))
        if isinstance(value, dict) and key not in MAPS | {"resourceAttributes"} and general not in OPEN:
            yield from sections(value, below)


def problems(values: dict[str, Any]) -> list[str]:
    return [error.message for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(values)]


def test_the_schema_is_one_and_the_values_follow_it() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert problems(VALUES) == []


@pytest.mark.parametrize("path", list(sections(VALUES)), ids=".".join)
def test_unknown_keys_are_refused_everywhere(path: tuple[str, ...]) -> None:
    values = copy.deepcopy(VALUES)
    section = values
    for key in path:
        section = section[key]
    section["misspelt"] = 1
    assert any("misspelt" in problem for problem in problems(values))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            "pools.target.gpus=4,config.target.tensor_parallel_size=2",
            "config.target.tensor_parallel_size (2) must equal pools.target.gpus (4)",
        ),
        (
            "pools.target.gpus=8,pools.target.nodeGpus=4,config.target.tensor_parallel_size=8",
            "pools.target.gpus is 8, more than a node of the pool has (pools.target.nodeGpus: 4)",
        ),
        ("security.internal.token.existingSecret=", "security.internal.token.existingSecret is empty"),
        (
            "security.public.tls.enabled=true",
            "security.public.tls needs a certificate: set existingSecret, or certManager.enabled",
        ),
        ("pools.target.replicas=many", "replicas"),
        ("mode=swarm", "mode"),
        ("replicaCount=3", "replicaCount"),
        ("config.target.modle=x", "modle"),
        ("config.target.port=1", "config.target.port is the chart's to set: use the value ports.target instead"),
        (f"fullnameOverride={'n' * 42}", "has 42 characters"),
        ("pools.draft.gpus=1", "config.draft.proposer auto only looks tokens up"),
        ("config.target.engine.device=cuda", "pools.target.gpus is 0: set gpus, or device to cpu"),
        (
            "config.draft.engine.device=cuda:1,config.draft.proposer=model,pools.draft.gpus=1",
            "config.draft.engine.device is cuda:1, and a pod sees only the GPU that it is given: leave device out",
        ),
        (
            "config.target.model=meta-llama/Llama-3.1-8B-Instruct",
            "limits.memory is 8Gi, and the weights of meta-llama/Llama-3.1-8B-Instruct alone take some 16 GB",
        ),
        (
            "config.draft.model=qwen2.5-7b-instruct,config.draft.proposer=model,config.draft.engine.quantization=int8",
            "pools.draft.resources.limits.memory is 4Gi, and the weights of qwen2.5-7b-instruct alone take some 7 GB",
        ),
        ("pools.target.enabled=false", "need each other"),
        ("modelCache.type=existingClaim", "set modelCache.existingClaim"),
        ("config.draft.learning.enabled=true", "a folder that the trainer shares with the pods that draft"),
        (
            "pools.draft.autoscaling.enabled=true,pools.draft.autoscaling.minReplicas=9",
            "minReplicas (9) is above maxReplicas (4)",
        ),
        (
            "monitoring.podMonitor.enabled=true,security.public.apiKeys.existingSecret=keys",
            "set monitoring.podMonitor.apiKeySecret",
        ),
        (
            "monitoring.serviceMonitor.enabled=true,security.public.apiKeys.existingSecret=keys",
            "set monitoring.serviceMonitor.apiKeySecret",
        ),
        ("httpRoute.enabled=true", "httpRoute.enabled needs httpRoute.parentRefs"),
        (
            "inferencePool.enabled=true,inferencePool.endpointPicker=picker",
            "needs config.telemetry.metrics_prefix vllm:",
        ),
        ("monitoring.podMonitor.enabled=true,monitoring.serviceMonitor.enabled=true", "would both scrape every pod"),
        ("inferencePool.enabled=true", "needs inferencePool.endpointPicker"),
        ("mode=rayservice,ray.servePort=8000", "ray.servePort is 8000, as is ports.http"),
        ("mode=rayservice,ray.servePort=50051", "ray.servePort is 50051, as is ports.grpc"),
        ("mode=rayservice,ray.servePort=9460", "ray.servePort is 9460, as is ports.metrics"),
    ],
)
def test_refusals_say_what_to_change(helm: Any, values: str, said: str) -> None:
    assert said in helm.refusal("--set", values)


@pytest.mark.parametrize(
    "values",
    [
        "config.target.model=llama-3.1-8b,pools.target.resources.limits.memory=24Gi",
        "config.target.model=llama-3.1-8b,config.target.engine.quantization=int4",
        "config.target.model=llama-3.1-8b,pools.target.gpus=1",
        "config.target.model=phi-4bit",
        "config.draft.model=llama-3.1-8b",
    ],
)
def test_memory_that_is_enough_or_not_known_is_not_refused(helm: Any, values: str) -> None:
    assert helm.template("--set", values)


def test_all_problems_are_told_at_once(helm: Any, major: str) -> None:
    wrong = "pools.target.gpus=4,security.internal.token.existingSecret=,config.cache_dir=/tmp"
    assert helm.refusal("--set", wrong, major=major).count("\n- ") == 3


def test_long_release_names_are_refused_not_cut(helm: Any) -> None:
    done = helm.run("helm4", "template", "a" * 40, str(CHART))
    assert "choose a shorter release name, or set fullnameOverride" in done.stderr


def test_on_and_off_are_words(helm: Any, tmp_path: Path) -> None:
    """YAML 1.1, which Helm reads, takes them for booleans."""
    values = tmp_path / "values.yaml"
    values.write_text("config: {orchestrator: {speculation: {mode: off}}}")
    config = only(helm.template("--values", str(values)), "ConfigMap")["data"]["config.yaml"]
    assert config_from_yaml(config).orchestrator.speculation.mode == "off"


def test_metrics_keep_the_configured_prefix_everywhere(helm: Any) -> None:
    everything = (
        "--values",
        str(CHART / "ci" / "extras-values.yaml"),
        "--values",
        str(CHART / "ci" / "autoscaling-values.yaml"),
    )
    objects = helm.template(*everything, "--set", "config.telemetry.metrics_prefix=vllm:")
    queries = [yaml.safe_dump(each) for each in objects if each["kind"] in ("PrometheusRule", "ScaledObject")]
    queries += [each["data"]["pilotfish.json"] for each in objects if "pilotfish.json" in each.get("data", {})]
    assert len(queries) > 2
    assert all("vllm:" in text and "pilotfish_" not in text for text in queries)


ROUTE = ("--set-json", 'httpRoute={"enabled":true,"parentRefs":[{"name":"gateway"}]}')
POOL = "inferencePool.enabled=true,inferencePool.endpointPicker=picker,config.telemetry.metrics_prefix=vllm:"


def test_http_has_a_route_to_the_orchestrators(helm: Any) -> None:
    assert only(helm.template(*ROUTE), "HTTPRoute")["spec"] == {
        "parentRefs": [{"name": "gateway"}],
        "rules": [{"backendRefs": [{"name": "pilotfish", "port": 8000}], "timeouts": {"request": "0s"}}],
    }


def test_the_route_may_go_through_an_inference_pool(helm: Any) -> None:
    objects = helm.template(*ROUTE, "--set", POOL)
    (rule,) = only(objects, "HTTPRoute")["spec"]["rules"]
    assert rule["backendRefs"] == [
        {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "pilotfish"}
    ]
    pool = only(objects, "InferencePool")["spec"]
    assert pool["targetPorts"] == [{"number": 8000}]
    assert pool["endpointPickerRef"] == {"name": "picker", "port": {"number": 9002}, "failureMode": "FailOpen"}
    orchestrators = only(objects, "Deployment", "pilotfish-orchestrator")["spec"]["template"]["metadata"]["labels"]
    assert pool["selector"]["matchLabels"].items() <= orchestrators.items()
    assert pool["selector"]["matchLabels"]["app.kubernetes.io/component"] == "orchestrator"


def test_a_service_monitor_finds_the_ports_of_services_and_pods(helm: Any) -> None:
    objects = helm.template("--set", "monitoring.serviceMonitor.enabled=true")
    monitor = only(objects, "ServiceMonitor")["spec"]
    assert [(each.get("port"), each.get("targetPort")) for each in monitor["endpoints"]] == [
        ("http", None),
        (None, "metrics"),
    ]
    labels = [each["metadata"]["labels"] for each in objects if each["kind"] == "Service"]
    assert labels
    assert all(monitor["selector"]["matchLabels"].items() <= each.items() for each in labels)
