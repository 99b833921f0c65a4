"""What Kubernetes and operators accept: their schemas, made strict. Needs the packages of the `dev` extra."""

import json
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate.utils
import yaml
from referencing import Registry, Resource

Object = dict[str, Any]
Kind = tuple[str, str]
"""(apiVersion, kind)."""

_CATALOGUE = {
    ("monitoring.coreos.com/v1", "PodMonitor"): "podmonitor_v1.json",
    ("monitoring.coreos.com/v1", "ServiceMonitor"): "servicemonitor_v1.json",
    ("monitoring.coreos.com/v1", "PrometheusRule"): "prometheusrule_v1.json",
    ("cert-manager.io/v1", "Certificate"): "certificate_v1.json",
    ("gateway.networking.k8s.io/v1", "GRPCRoute"): "grpcroute_v1.json",
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): "httproute_v1.json",
    ("inference.networking.k8s.io/v1", "InferencePool"): "inferencepool_v1.json",
    ("keda.sh/v1alpha1", "ScaledObject"): "scaledobject_v1alpha1.json",
}
"""Files with the schema of one kind each. A folder without one leaves the kind unchecked."""
_DEFINITIONS = ("ray.io_rayservices.yaml",)
"""Files with CustomResourceDefinitions."""


def is_built_in(item: Object) -> bool:
    """Whether Kubernetes itself knows the kind: groups of others have a domain that is not its own."""
    group, _, _ = item["apiVersion"].rpartition("/")
    return "." not in group or (group.endswith(".k8s.io") and not group.startswith(("gateway.", "inference.")))


def check_built_in(item: Object, version: str) -> None:
    """Raises ValueError unless Kubernetes `version` (1.34, ...) knows the kind and accepts the object."""
    problem = next(_built_in(item["apiVersion"], item["kind"], version).iter_errors(item), None)
    if problem is not None:
        path = ".".join(map(str, problem.absolute_path))
        raise ValueError(f"Kubernetes {version}: {path}: {problem.message}"[:500])


@cache
def _built_in(api_version: str, kind: str, version: str) -> jsonschema.protocols.Validator:
    """As kubernetes_validate.validate(strict=True), which reads megabytes anew for each object."""
    folder = _schema_folder(version)
    group, _, rest = api_version.rpartition("/")
    name = "-".join(filter(None, (kind.lower(), group.partition(".")[0], rest)))
    try:
        schema = kubernetes_validate.utils.schema_contents(f"{folder}/{name}.json", version)
    except FileNotFoundError:
        raise ValueError(f"Kubernetes {version} has no {api_version} {kind}") from None
    return jsonschema.Draft202012Validator(schema, registry=_definitions(folder, version))


@cache
def _definitions(folder: str, version: str) -> Registry[Any]:
    definitions = kubernetes_validate.utils.schema_contents(f"{folder}/_definitions.json", version)
    return Resource.from_contents(definitions) @ Registry()


def _schema_folder(version: str) -> str:
    full = next(each for each in kubernetes_validate.utils.all_versions() if each.startswith(f"{version}."))
    return f"kubernetes-json-schema/v{full}-local-strict"


class CustomResources:
    """The schemas of custom resources in a folder."""

    def __init__(self, folder: Path) -> None:
        self._validators = {kind: _validator(schema) for kind, schema in _schemas(folder)}

    def check(self, item: Object) -> None:
        """Raises ValueError for what the operator's schema does not allow, or of a kind that has none here."""
        kind = (item["apiVersion"], item["kind"])
        validator = self._validators.get(kind)
        if validator is None:
            if kind in _CATALOGUE:
                return
            raise ValueError(f"no schema of {item['apiVersion']} {item['kind']}")
        problems = [
            f"{'/'.join(map(str, problem.absolute_path))}: {problem.message[:300]}"
            for problem in validator.iter_errors(item)
        ]
        if problems:
            raise ValueError("; ".join(problems))


@lru_cache(maxsize=1)
def custom_resources(folder: Path) -> CustomResources:
    """As CustomResources; reading a megabyte of definitions takes a second."""
    return CustomResources(folder)


def _schemas(folder: Path) -> Iterable[tuple[Kind, Mapping[str, Any]]]:
    for kind, name in _CATALOGUE.items():
        if (folder / name).is_file():
            yield kind, json.loads((folder / name).read_text(encoding="utf-8"))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for name in _DEFINITIONS:
        if not (folder / name).is_file():
            continue
        for document in yaml.load_all((folder / name).read_text(encoding="utf-8"), loader):
            spec = document["spec"]
            for version in spec["versions"]:
                kind = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
                if version["name"] == "v1":
                    yield kind, version["schema"]["openAPIV3Schema"]


def _validator(schema: Mapping[str, Any]) -> jsonschema.protocols.Validator:
    strict = _strict(schema)
    strict["properties"]["metadata"] = {"type": "object"}
    return jsonschema.Draft202012Validator(strict)


def _strict(schema: Any) -> Any:
    """A structural schema under which unknown fields are errors, and those with a default need not be given.

    The API server prunes the former in silence and fills in the latter before it validates.
    """
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    properties = result.get("properties")
    if isinstance(properties, dict):
        result["properties"] = {name: _strict(value) for name, value in properties.items()}
        if not result.get("x-kubernetes-preserve-unknown-fields"):
            result.setdefault("additionalProperties", False)
        result["required"] = [each for each in result.get("required", ()) if "default" not in properties.get(each, {})]
    result.update({key: _strict(result[key]) for key in ("items", "additionalProperties") if key in result})
    if result.get("x-kubernetes-embedded-resource"):
        result["additionalProperties"] = True
    if result.pop("nullable", False) and isinstance(result.get("type"), str):
        result["type"] = [result["type"], "null"]
    return result
