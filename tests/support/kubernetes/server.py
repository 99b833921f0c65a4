"""The stand-in over HTTP, as far as Helm 3, Helm 4 and kubectl ask."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.support.kubernetes.controllers import Object
from tests.support.kubernetes.patches import merged, strategically_merged
from tests.support.kubernetes.resources import BUILT_IN, CUSTOM, Catalogue, Resource
from tests.support.kubernetes.secret_protobuf import MAGIC, decode_secret
from tests.support.kubernetes.selectors import selector
from tests.support.kubernetes.store import ApiError, Key, Store, Validate

WATCH_LIMIT_S = 60.0
_POLL_S = 0.2
"""A watch looks this often whether it has lasted long enough."""


class KubernetesApi(ThreadingHTTPServer):
    """The server. `store` is what it holds."""

    daemon_threads = True

    def __init__(self, validate: Validate, resources: Sequence[Resource] = (*BUILT_IN, *CUSTOM)) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.catalogue = Catalogue(resources)
        self.store = Store(validate)
        self.is_closing = threading.Event()
        namespace = next(each for each in resources if each.kind == "Namespace")
        item = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
        self.store.put(Key(namespace, "", "default"), item)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def kubeconfig(self) -> str:
        """The file with which clients find it."""
        values = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "stand-in", "cluster": {"server": self.url}}],
            "users": [{"name": "anybody", "user": {}}],
            "contexts": [{"name": "stand-in", "context": {"cluster": "stand-in", "user": "anybody"}}],
            "current-context": "stand-in",
        }
        return yaml.safe_dump(values)


@contextmanager
def kubernetes_api(validate: Validate) -> Iterator[KubernetesApi]:
    """A stand-in that serves until the block ends. validate: raises ValueError for what a schema does not allow."""
    server = KubernetesApi(validate)
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_S / 10,), name="kubernetes-api", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.is_closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes: each answer waited 40 ms for an acknowledgement
    server: KubernetesApi

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self) -> None:
        url = urlsplit(self.path)
        self._query = {name: values[0] for name, values in parse_qs(url.query).items()}
        body = self._body()
        try:
            document = self.server.catalogue.discover(url.path.rstrip("/")) if self.command == "GET" else None
            if document is not None:
                self._send(HTTPStatus.OK, document)
            else:
                self._answer_about_objects(url.path, body)
        except ApiError as error:
            self._send(error.code, error.status)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815  # http.server's names

    def _answer_about_objects(self, path: str, raw: bytes) -> None:
        resource, namespace, name = self._route(path)
        store, is_dry_run = self.server.store, "dryRun" in self._query
        if self.command == "GET" and not name:
            self._list(resource, namespace)
        elif self.command == "GET":
            self._send(HTTPStatus.OK, store.get(Key(resource, namespace, name)))
        elif self.command == "DELETE":
            self._send(HTTPStatus.OK, store.delete(Key(resource, namespace, name), is_dry_run=is_dry_run))
        else:
            key, item = self._written(resource, namespace, name, _parse(raw))
            is_new = self.command == "POST"
            saved = store.put(key, item, must_be_new=is_new, is_dry_run=is_dry_run)
            self._send(HTTPStatus.CREATED if is_new else HTTPStatus.OK, saved)

    def _written(self, resource: Resource, namespace: str, name: str, body: Object) -> tuple[Key, Object]:
        """Where a request writes, and what."""
        content_type = self.headers.get("Content-Type", "")
        if self.command == "PATCH" and "apply-patch" not in content_type:
            if "json-patch" in content_type:
                raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", content_type)
            apply = strategically_merged if "strategic-merge-patch" in content_type else merged
            body = apply(self.server.store.get(Key(resource, namespace, name)), body)
        body = {"apiVersion": resource.group_version, "kind": resource.kind, **body}
        if (body["apiVersion"], body["kind"]) != (resource.group_version, resource.kind):
            raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", f"{body['kind']} sent to {resource.plural}")
        metadata = body.setdefault("metadata", {})
        metadata.setdefault("name", name)
        if resource.is_namespaced and metadata.setdefault("namespace", namespace) != namespace:
            raise ApiError(HTTPStatus.BAD_REQUEST, "BadRequest", "the namespace of the object is not the request's")
        return Key(resource, namespace, metadata["name"]), body

    def _route(self, path: str) -> tuple[Resource, str, str]:
        """(resource, namespace, name) of a path; empty where it has none. Raises ApiError (404)."""
        root, *parts = path.strip("/").split("/")
        num_version_parts = 1 if root == "api" else 2
        group_version, rest = "/".join(parts[:num_version_parts]), parts[num_version_parts:]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        resource = self.server.catalogue.find(group_version, rest[0]) if rest else None
        if resource is None:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", "the server could not find the requested resource")
        return resource, namespace, rest[1] if len(rest) > 1 else ""

    def _list(self, resource: Resource, namespace: str) -> None:
        selects = selector(self._query.get("labelSelector", ""), self._query.get("fieldSelector", ""))
        if self._query.get("watch") in ("1", "true"):
            self._stream(resource, namespace, selects)
            return
        items = self.server.store.list(resource, namespace, selects)
        metadata = {"resourceVersion": str(self.server.store.version)}
        kind = f"{resource.kind}List"
        self._send(
            HTTPStatus.OK, {"kind": kind, "apiVersion": resource.group_version, "metadata": metadata, "items": items}
        )

    def _stream(self, resource: Resource, namespace: str, selects: Any) -> None:
        """A watch, until the client has seen enough."""
        wants_existing = self._query.get("sendInitialEvents") == "true"
        since = self._query.get("resourceVersion", "")
        start = int(since) if since.isdecimal() and not wants_existing else 0
        end = time.monotonic() + min(float(self._query.get("timeoutSeconds", WATCH_LIMIT_S)), WATCH_LIMIT_S)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with self.server.store.watching(resource, namespace, selects, start) as watch:
            if wants_existing:
                annotations = {"k8s.io/initial-events-end": "true"}
                metadata = {"resourceVersion": str(self.server.store.version), "annotations": annotations}
                bookmark = {"kind": resource.kind, "apiVersion": resource.group_version, "metadata": metadata}
                watch.events.put(("BOOKMARK", bookmark))
            while time.monotonic() < end and not self.server.is_closing.is_set():
                try:
                    event, item = watch.events.get(timeout=_POLL_S)
                except queue.Empty:
                    continue
                self._write_chunk(json.dumps({"type": event, "object": item}).encode() + b"\n")
        self._write_chunk(b"")

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _write_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _send(self, code: HTTPStatus, document: Any) -> None:
        data = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _parse(raw: bytes) -> Object:
    """An object in one of the three encodings that clients use. Raises ApiError (415)."""
    if raw.startswith(MAGIC):
        try:
            return decode_secret(raw)
        except ValueError as error:
            raise ApiError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", str(error)) from None
    parsed = json.loads(raw) if raw.startswith(b"{") else yaml.safe_load(raw)
    return parsed if isinstance(parsed, dict) else {}
