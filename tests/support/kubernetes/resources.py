"""The kinds that the stand-in serves, and the documents in which an API server lists them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

KUBERNETES_VERSION = "1.34"

_SHORT_NAMES = {
    "Deployment": "deploy",
    "Pod": "po",
    "Service": "svc",
    "ConfigMap": "cm",
    "PersistentVolumeClaim": "pvc",
}


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of objects and where they are."""

    group_version: str
    """`v1`, `apps/v1`, ..."""
    plural: str
    kind: str
    is_namespaced: bool = True

    @property
    def path(self) -> str:
        """Of its group version, below the server's root."""
        return f"api/{self.group_version}" if "/" not in self.group_version else f"apis/{self.group_version}"


BUILT_IN = (
    Resource("v1", "namespaces", "Namespace", is_namespaced=False),
    *(
        Resource(group_version, plural, kind)
        for group_version, plural, kind in (
            ("v1", "pods", "Pod"),
            ("v1", "services", "Service"),
            ("v1", "configmaps", "ConfigMap"),
            ("v1", "secrets", "Secret"),
            ("v1", "serviceaccounts", "ServiceAccount"),
            ("v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
            ("v1", "events", "Event"),
            ("apps/v1", "deployments", "Deployment"),
            ("apps/v1", "replicasets", "ReplicaSet"),
            ("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget"),
            ("autoscaling/v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
            ("networking.k8s.io/v1", "networkpolicies", "NetworkPolicy"),
            ("networking.k8s.io/v1", "ingresses", "Ingress"),
        )
    ),
)
"""What charts of services need of Kubernetes itself."""

CUSTOM = (
    Resource("ray.io/v1", "rayservices", "RayService"),
    Resource("keda.sh/v1alpha1", "scaledobjects", "ScaledObject"),
    Resource("monitoring.coreos.com/v1", "podmonitors", "PodMonitor"),
    Resource("monitoring.coreos.com/v1", "prometheusrules", "PrometheusRule"),
    Resource("cert-manager.io/v1", "certificates", "Certificate"),
    Resource("gateway.networking.k8s.io/v1", "grpcroutes", "GRPCRoute"),
)
"""Of operators that Pilotfish's chart has objects for."""


class Catalogue:
    """The resources that are served."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._resources = {(each.group_version, each.plural): each for each in resources}

    def find(self, group_version: str, plural: str) -> Resource | None:
        return self._resources.get((group_version, plural))

    def of(self, group_version: str) -> list[Resource]:
        return [each for each in self._resources.values() if each.group_version == group_version]

    @property
    def group_versions(self) -> list[str]:
        return list(dict.fromkeys(each.group_version for each in self._resources.values()))

    def discover(self, path: str) -> Mapping[str, Any] | None:
        """The discovery document at a path; None: that is no path of one."""
        if path == "/version":
            major, minor = KUBERNETES_VERSION.split(".")
            return {"major": major, "minor": minor, "gitVersion": f"v{KUBERNETES_VERSION}.0", "platform": "linux/amd64"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": self._groups()}
        if path == "/openapi/v3":
            paths = [self.of(each)[0].path for each in self.group_versions]
            return {"paths": {each: {"serverRelativeURL": f"/openapi/v3/{each}?hash=0"} for each in paths}}
        for group_version in self.group_versions:
            resources = self.of(group_version)
            if path == f"/{resources[0].path}":
                return _resource_list(group_version, resources)
            if path == f"/openapi/v3/{resources[0].path}":
                return _openapi(resources)
        return None

    def _groups(self) -> list[Mapping[str, Any]]:
        versions: dict[str, list[dict[str, str]]] = {}
        for group_version in self.group_versions:
            group, _, version = group_version.rpartition("/")
            if group:
                versions.setdefault(group, []).append({"groupVersion": group_version, "version": version})
        return [{"name": group, "versions": known, "preferredVersion": known[0]} for group, known in versions.items()]


def _resource_list(group_version: str, resources: list[Resource]) -> Mapping[str, Any]:
    verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
    described = [
        {
            "name": each.plural,
            "singularName": each.kind.lower(),
            "namespaced": each.is_namespaced,
            "kind": each.kind,
            "shortNames": [_SHORT_NAMES[each.kind]] if each.kind in _SHORT_NAMES else [],
            "verbs": verbs,
        }
        for each in resources
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": described}


def _openapi(resources: list[Resource]) -> Mapping[str, Any]:
    """Says one thing: every kind takes `fieldValidation`, so that clients leave validation to the server."""
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    paths = {}
    for each in resources:
        group, _, version = each.group_version.rpartition("/")
        patch = {
            "operationId": f"patch{each.kind}",
            "parameters": [parameter],
            "responses": {},
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": each.kind},
        }
        paths[f"/{each.path}/{each.plural}/{{name}}"] = {"patch": patch}
    return {"openapi": "3.0.0", "info": {"title": "stand-in", "version": "v1"}, "paths": paths}
