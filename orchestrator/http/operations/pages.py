"""The playground: a page and what it needs, from the package into memory, sent with a strict content policy."""

from __future__ import annotations

import hashlib
from importlib import resources

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

_FOLDER = "playground"
_INDEX = "index.html"
_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    # Nothing but this server's own files and API, no inline script or style, no frame around it.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Asked for every time, answered with 304 while it is the same: an update of the server is one of the page.
    "cache-control": "no-cache",
}


def playground_routes() -> list[Route]:
    """`/` is the page; what it loads is below /playground/."""
    routes = []
    for file in resources.files("orchestrator.http").joinpath(_FOLDER).iterdir():
        content_type = _CONTENT_TYPES.get("." + file.name.rpartition(".")[2])
        if content_type is not None:
            path = "/" if file.name == _INDEX else f"/{_FOLDER}/{file.name}"
            routes.append(Route(path, _Page(file.read_bytes(), content_type), methods=["GET"]))
    return routes


class _Page:
    """Answers with one file, which never changes."""

    def __init__(self, content: bytes, content_type: str) -> None:
        self._content = content
        self._etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        self._headers = {**_HEADERS, "content-type": content_type, "etag": self._etag}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_known = Headers(scope=scope).get("if-none-match", "") == self._etag
        response = Response(b"" if is_known else self._content, 304 if is_known else 200, self._headers)
        await response(scope, receive, send)
