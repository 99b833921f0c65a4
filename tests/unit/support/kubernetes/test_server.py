from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest
import yaml

from tests.support.kubernetes.server import KubernetesApi, kubernetes_api

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    def validate(item: dict[str, Any]) -> None:
        if "misspelt" in item:
            raise ValueError("misspelt: unknown field")

    with kubernetes_api(validate) as server:
        yield server


def call(api: KubernetesApi, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(api.url + path, data, {"Content-Type": content_type}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        return json.load(error)


def config_map(name: str = "a", **values: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": name}},
        "data": values,
    }


def test_clients_find_kinds_by_discovery(api: KubernetesApi) -> None:
    groups = [group["name"] for group in call(api, "GET", "/apis")["groups"]]
    assert {"apps", "ray.io", "policy"} <= set(groups)
    for path in call(api, "GET", "/openapi/v3")["paths"]:
        kinds = {each["kind"] for each in call(api, "GET", f"/{path}")["resources"]}
        described = call(api, "GET", f"/openapi/v3/{path}")["paths"].values()
        assert {each["patch"]["x-kubernetes-group-version-kind"]["kind"] for each in described} == kinds
    assert yaml.safe_load(api.kubeconfig)["clusters"][0]["cluster"]["server"] == api.url


def test_an_object_from_creation_to_deletion(api: KubernetesApi) -> None:
    assert call(api, "POST", CONFIG_MAPS, config_map(key="1"))["metadata"]["namespace"] == "default"
    patched = call(api, "PATCH", f"{CONFIG_MAPS}/a", {"data": {"key": "2"}}, "application/merge-patch+json")
    assert patched["data"] == {"key": "2"}
    applied = call(api, "PATCH", f"{CONFIG_MAPS}/b", config_map("b"), "application/apply-patch+yaml")
    assert applied["metadata"]["name"] == "b"
    listed = call(api, "GET", f"{CONFIG_MAPS}?labelSelector=app%3Da")["items"]
    assert [each["metadata"]["name"] for each in listed] == ["a"]
    call(api, "DELETE", f"{CONFIG_MAPS}/a")
    assert call(api, "GET", f"{CONFIG_MAPS}/a")["code"] == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", CONFIG_MAPS, {**config_map(), "misspelt": 1}, HTTPStatus.UNPROCESSABLE_ENTITY),
        ("POST", CONFIG_MAPS, {**config_map(), "kind": "Secret"}, HTTPStatus.BAD_REQUEST),
        ("POST", "/api/v1/namespaces/default/misspelt", config_map(), HTTPStatus.NOT_FOUND),
        ("PATCH", f"{CONFIG_MAPS}/nobody", {"data": {}}, HTTPStatus.NOT_FOUND),
    ],
    ids=["schema", "kind", "path", "missing"],
)
def test_refusals_are_statuses(api: KubernetesApi, method: str, path: str, body: Any, code: HTTPStatus) -> None:
    status = call(api, method, path, body, "application/merge-patch+json")
    assert (status["kind"], status["code"]) == ("Status", code)


def test_watchers_get_events_as_they_come(api: KubernetesApi) -> None:
    call(api, "POST", CONFIG_MAPS, config_map("before"))
    with urllib.request.urlopen(f"{api.url}{CONFIG_MAPS}?watch=true&sendInitialEvents=true", timeout=10) as events:
        first, bookmark = json.loads(events.readline()), json.loads(events.readline())
        call(api, "POST", CONFIG_MAPS, config_map("later"))
        later = json.loads(events.readline())
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "before")
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert (later["type"], later["object"]["metadata"]["name"]) == ("ADDED", "later")
