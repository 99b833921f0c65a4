"""Configuration of the OpenAI-compatible HTTP API."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import PositiveInt

from pilotfish.config.fields import STRICT, OptionalPort

DEFAULT_HTTP_PORT = 8000
"""Where clients of vLLM and others look."""


@dataclass(frozen=True, kw_only=True)
class HttpConfig:
    """The OpenAI-compatible HTTP API, served by the orchestrator."""

    __pydantic_config__ = STRICT

    host: str = ""
    """Address to listen on; empty: orchestrator.host."""
    port: OptionalPort | None = None
    """Port; 0: a free one, -1: no HTTP. null: 8000, or a free one if orchestrator.port is 0."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call the API, such as `https://chat.example`; `*`: all. The playground needs none."""
    max_choices: PositiveInt = 128
    """Maximum answers per request (`n` times prompts). Each queues as a request."""
    strict_fields: bool = False
    """Refuse requests with unknown fields (400) instead of ignoring these and naming them in the response header
    `x-pilotfish-ignored-fields`."""
    keep_alive_timeout_s: PositiveInt = 75
    """Idle connections are closed after this. Keep it above the clients' own."""
