"""Checks before anything of an HTTP request is read: who sends it, and from which page."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.api_security import Authenticator
from orchestrator.http.errors import describe_error, error_body, error_response
from pilotfish.errors import AuthenticationError
from pilotfish.security.allowance import Allowance
from pilotfish.security.hosts import is_address

OPEN_PATHS = frozenset({"/", "/health", "/ready"})
"""Paths that need no key: probes have none, and the playground is where a person types one in."""
OPEN_FOLDER = "/playground/"
_ALLOWANCE = "pilotfish.allowance"


def allowance_of(scope: Scope) -> Allowance | None:
    """What the sender may use; None: as much as there is."""
    allowance: Allowance | None = scope.get(_ALLOWANCE)
    return allowance


class AuthMiddleware:
    """ASGI middleware: keys where there are any, and no requests on behalf of other sites' pages where there are none.

    A page from anywhere can make a browser send requests to an address that only the browser reaches. It cannot make
    it send a key; without keys, where a request says it comes from has to do.
    """

    def __init__(
        self, app: ASGIApp, authenticator: Authenticator, *, hosts: tuple[str, ...], cors_origins: tuple[str, ...]
    ) -> None:
        """hosts: the server's names, `*.example` for all below one, `*` for any."""
        self._app = app
        self._authenticator = authenticator
        self._origins = frozenset(cors_origins)
        names = [*hosts, *(urlsplit(origin).hostname or "" for origin in cors_origins)]
        self._names = tuple(name.lower() for name in names if name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            has_keys = self._authenticator.asks_for_keys
            refusal = self._check_key(scope, headers) if has_keys else self._check_origin(headers)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check_key(self, scope: Scope, headers: Headers) -> Response | None:
        path: str = scope["path"]
        if path in OPEN_PATHS or path.startswith(OPEN_FOLDER):
            return None
        try:
            scope[_ALLOWANCE] = self._authenticator.allowance(headers.get("authorization", ""))
        except AuthenticationError as error:
            status, body, _ = describe_error(error)
            return error_response(status, body, {"www-authenticate": "Bearer"})
        return None

    def _check_origin(self, headers: Headers) -> Response | None:
        host, origin = headers.get("host", ""), headers.get("origin", "")
        if "*" in self._origins:
            return None
        name = _name_of(host)
        if name and not self._is_known(name):
            # A page whose site's name was made to lead here: to the browser the two are the same site.
            return _forbidden(
                f"this server does not go by the name {host!r}; orchestrator.http.allowed_hosts names more"
            )
        if origin and origin not in self._origins and origin.partition("://")[2] != host:
            return _forbidden(f"pages of {origin} may not use this server; orchestrator.http.cors_origins lets them")
        return None

    def _is_known(self, name: str) -> bool:
        """Whether a request to `name` is one to this server. Nobody can make an address lead elsewhere."""
        return (
            is_address(name)
            or name == "localhost"
            or any(name == own or own == "*" or (own[:2] == "*." and name.endswith(own[1:])) for own in self._names)
        )


def _name_of(host: str) -> str:
    """The host's name without the port, in lower case."""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return host


def _forbidden(message: str) -> Response:
    return error_response(403, error_body(403, message, code="origin_not_allowed"), {})
