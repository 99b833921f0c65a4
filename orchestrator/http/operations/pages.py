"""The playground: a page and what it needs, from the package into memory, sent with a strict content policy."""

from __future__ import annotations

from importlib import resources

from starlette.responses import Response
from starlette.routing import Route

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
    # An update of the server is one of the page.
    "cache-control": "no-cache",
}


def playground_routes() -> list[Route]:
    """`/` is the page; what it loads is below /playground/."""
    routes = []
    for file in resources.files("orchestrator.http").joinpath(_FOLDER).iterdir():
        content_type = _CONTENT_TYPES.get("." + file.name.rpartition(".")[2])
        if content_type is not None:
            path = "/" if file.name == _INDEX else f"/{_FOLDER}/{file.name}"
            page = Response(file.read_bytes(), headers={**_HEADERS, "content-type": content_type})
            routes.append(Route(path, page, methods=["GET"]))
    return routes
