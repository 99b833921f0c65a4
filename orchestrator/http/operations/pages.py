"""The playground: a page and what it needs, from the package into memory, sent with a strict content policy."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Page:
    """A file that never changes."""

    content: bytes
    content_type: str
    etag: str


def playground_routes() -> list[Route]:
    """`/` is the page; what it loads is below /playground/."""
    pages = _read_pages()
    routes = [Route("/", _Sender(pages.pop(_INDEX)), methods=["GET"])]
    routes += [Route(f"/{_FOLDER}/{name}", _Sender(page), methods=["GET"]) for name, page in pages.items()]
    return routes


def _read_pages() -> dict[str, Page]:
    folder = resources.files("orchestrator.http").joinpath(_FOLDER)
    pages = {}
    for file in folder.iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if suffix in _CONTENT_TYPES:
            content = file.read_bytes()
            pages[file.name] = Page(content, _CONTENT_TYPES[suffix], f'"{hashlib.sha256(content).hexdigest()[:16]}"')
    return pages


class _Sender:
    """Answers with one file."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._headers = {**_HEADERS, "content-type": page.content_type, "etag": page.etag}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_known = Headers(scope=scope).get("if-none-match", "") == self._page.etag
        response = Response(b"" if is_known else self._page.content, 304 if is_known else 200, self._headers)
        await response(scope, receive, send)
