"""The stand-in's objects: versions, conflicts, and who watches them."""

from __future__ import annotations

import copy
import queue
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

from tests.support.kubernetes.controllers import STARTED, Object, settle
from tests.support.kubernetes.resources import Resource
from tests.support.kubernetes.selectors import Predicate

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_LABEL_LENGTH = 63

Validate = Callable[[Object], None]
"""Raises ValueError for an object that its schema does not allow."""


class ApiError(Exception):
    """What the API server answers instead."""

    def __init__(self, code: HTTPStatus, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason

    @property
    def status(self) -> Object:
        """The object of kind Status that clients read."""
        body = {"status": "Failure", "reason": self.reason, "code": int(self.code), "message": str(self)}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, **body}


class Key(NamedTuple):
    """Where an object is."""

    resource: Resource
    namespace: str
    name: str


Event = tuple[str, Object]
"""`ADDED`, `MODIFIED` or `DELETED`, and the object."""


@dataclass(eq=False)
class Watch:
    """One client's, of the objects of a kind."""

    resource: Resource
    namespace: str
    selects: Predicate
    events: queue.SimpleQueue[Event]

    def wants(self, key: Key, item: Object) -> bool:
        is_here = key.resource == self.resource and self.namespace in ("", key.namespace)
        return is_here and self.selects(item)


class Store:
    """Safe to use from any thread."""

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._lock = threading.RLock()
        self._objects: dict[Key, Object] = {}
        self._watches: list[Watch] = []
        self.version = 1
        """Of the newest change."""

    def get(self, key: Key) -> Object:
        """A copy. Raises ApiError (404)."""
        with self._lock:
            return copy.deepcopy(self._existing(key))

    def list(self, resource: Resource, namespace: str, selects: Predicate) -> list[Object]:
        """Copies, in the order of namespaces and names. namespace: empty for all."""
        watch = Watch(resource, namespace, selects, queue.SimpleQueue())
        with self._lock:
            found = [(key, item) for key, item in self._objects.items() if watch.wants(key, item)]
            return [copy.deepcopy(item) for _, item in sorted(found, key=lambda pair: pair[0][1:])]

    def all(self) -> dict[tuple[str, str], Object]:
        """Copies of everything, by kind and name."""
        with self._lock:
            return {(key.resource.kind, key.name): copy.deepcopy(item) for key, item in self._objects.items()}

    def put(self, key: Key, item: Object, *, must_be_new: bool = False, is_dry_run: bool = False) -> Object:
        """Create or replace. Raises ApiError: 409, or 422 for what the schema or Kubernetes' own rules refuse."""
        with self._lock:
            current = self._objects.get(key)
            if must_be_new and current is not None:
                raise ApiError(
                    HTTPStatus.CONFLICT, "AlreadyExists", f'{key.resource.plural} "{key.name}" already exists'
                )
            item = copy.deepcopy(item)
            item.pop("status", None)
            self._check(key, item, current)
            metadata = item["metadata"]
            if current is None:
                metadata.update(uid=str(uuid.uuid4()), creationTimestamp=STARTED, generation=1)
            else:
                old = current["metadata"]
                metadata.update(uid=old["uid"], creationTimestamp=old["creationTimestamp"])
                metadata["generation"] = old["generation"] + (current.get("spec") != item.get("spec"))
            if not is_dry_run:
                self._save(key, item, "ADDED" if current is None else "MODIFIED")
            return copy.deepcopy(item)

    def delete(self, key: Key, *, is_dry_run: bool = False) -> Object:
        """Remove at once. Raises ApiError (404)."""
        with self._lock:
            item = self._existing(key)
            if not is_dry_run:
                del self._objects[key]
                self.version += 1
                self._tell(key, "DELETED", item)
            return item

    @contextmanager
    def watching(self, resource: Resource, namespace: str, selects: Predicate, since: int) -> Iterator[Watch]:
        """Events from version `since` on; what exists and is newer comes first, as ADDED."""
        watch = Watch(resource, namespace, selects, queue.SimpleQueue())
        with self._lock:
            for key, item in self._objects.items():
                if watch.wants(key, item) and int(item["metadata"]["resourceVersion"]) > since:
                    watch.events.put(("ADDED", copy.deepcopy(item)))
            self._watches.append(watch)
        try:
            yield watch
        finally:
            with self._lock:
                self._watches.remove(watch)

    def _existing(self, key: Key) -> Object:
        if key not in self._objects:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", f'{key.resource.plural} "{key.name}" not found')
        return self._objects[key]

    def _check(self, key: Key, item: Object, current: Object | None) -> None:
        namespaces = {each.name for each in self._objects if each.resource.kind == "Namespace"}
        if key.resource.is_namespaced and key.namespace not in namespaces:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", f'namespaces "{key.namespace}" not found')
        if not _NAME.fullmatch(key.name) or (key.resource.kind == "Service" and len(key.name) > _LABEL_LENGTH):
            raise _invalid(f"metadata.name: {key.name!r}")
        try:
            self._validate(item)
        except ValueError as error:
            raise _invalid(f"{key.resource.kind} {key.name}: {error}") from None
        was = item if current is None else current
        if key.resource.kind == "Deployment" and was["spec"]["selector"] != item["spec"]["selector"]:
            raise _invalid("spec.selector: field is immutable")

    def _save(self, key: Key, item: Object, event: str) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        settle(item)
        self._objects[key] = item
        self._tell(key, event, item)

    def _tell(self, key: Key, event: str, item: Object) -> None:
        for watch in self._watches:
            if watch.wants(key, item):
                watch.events.put((event, copy.deepcopy(item)))


def _invalid(message: str) -> ApiError:
    return ApiError(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message)
