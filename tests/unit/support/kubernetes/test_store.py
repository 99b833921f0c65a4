from __future__ import annotations

from http import HTTPStatus
from typing import Any

import pytest

from tests.support.kubernetes.resources import BUILT_IN, Resource
from tests.support.kubernetes.selectors import selector
from tests.support.kubernetes.store import ApiError, Key, Store

EVERYTHING = selector("", "")


def resource(kind: str) -> Resource:
    return next(each for each in BUILT_IN if each.kind == kind)


def deployment(replicas: int = 1, app: str = "x") -> dict[str, Any]:
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": app}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


@pytest.fixture
def store() -> Store:
    def validate(item: dict[str, Any]) -> None:
        if "misspelt" in item:
            raise ValueError("misspelt: unknown field")

    store = Store(validate)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    store.put(Key(resource("Namespace"), "", "default"), namespace)
    return store


KEY = Key(resource("Deployment"), "default", "d")


def test_objects_settle_and_count_generations(store: Store) -> None:
    created = store.put(KEY, deployment())
    assert created["status"]["availableReplicas"] == 1
    changed = store.put(KEY, deployment(replicas=3))
    assert (created["metadata"]["generation"], changed["metadata"]["generation"]) == (1, 2)
    assert changed["metadata"]["uid"] == created["metadata"]["uid"]
    assert int(changed["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])


@pytest.mark.parametrize(
    ("key", "item", "code"),
    [
        (KEY, {**deployment(), "misspelt": 1}, HTTPStatus.UNPROCESSABLE_ENTITY),
        (KEY, deployment(app="y"), HTTPStatus.UNPROCESSABLE_ENTITY),
        (KEY._replace(name="Upper"), deployment(), HTTPStatus.UNPROCESSABLE_ENTITY),
        (KEY._replace(namespace="nowhere"), deployment(), HTTPStatus.NOT_FOUND),
    ],
    ids=["schema", "immutable selector", "name", "namespace"],
)
def test_what_kubernetes_refuses(store: Store, key: Key, item: dict[str, Any], code: HTTPStatus) -> None:
    store.put(KEY, deployment())
    with pytest.raises(ApiError) as caught:
        store.put(key, item)
    assert caught.value.code == code
    assert caught.value.status["code"] == code


def test_creating_twice_conflicts_and_deleting_twice_finds_nothing(store: Store) -> None:
    store.put(KEY, deployment(), must_be_new=True)
    with pytest.raises(ApiError, match="already exists"):
        store.put(KEY, deployment(), must_be_new=True)
    store.delete(KEY)
    with pytest.raises(ApiError, match="not found"):
        store.delete(KEY)


def test_a_dry_run_leaves_nothing(store: Store) -> None:
    store.put(KEY, deployment(), is_dry_run=True)
    assert store.list(KEY.resource, "", EVERYTHING) == []


def test_watchers_hear_what_was_and_what_comes(store: Store) -> None:
    store.put(KEY, deployment())
    with store.watching(KEY.resource, "default", EVERYTHING, since=0) as watch:
        store.put(KEY, deployment(replicas=2))
        store.delete(KEY)
        assert [watch.events.get_nowait()[0] for _ in range(3)] == ["ADDED", "MODIFIED", "DELETED"]
    store.put(KEY, deployment())
    assert watch.events.empty()
