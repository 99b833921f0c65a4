"""Around all that is done for an HTTP request: what it is called, in its answer as well."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.requests.identity import RequestIdentity

_IDENTITY = "pilotfish.identity"


def identity_of(scope: Scope) -> RequestIdentity:
    """The identity of the request that is being served."""
    identity: RequestIdentity = scope[_IDENTITY]
    return identity


class IdentityMiddleware:
    """ASGI middleware: every answer has its request's ids among its headers, a refusal too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        identity = scope[_IDENTITY] = RequestIdentity.of(Headers(scope=scope)).enter()
        headers = [(name.encode(), value.encode()) for name, value in identity.headers.items()]

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        await self._app(scope, receive, send_named)
