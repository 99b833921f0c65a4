"""Configuration of the OpenAI-compatible HTTP API."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.config.fields import STRICT, require

DEFAULT_HTTP_PORT = 8000
"""Where clients of vLLM and others look."""


@dataclass(frozen=True, kw_only=True)
class HttpConfig:
    """The HTTP API of the orchestrator, in its process and on its event loop."""

    __pydantic_config__ = STRICT

    host: str = ""
    """Empty: orchestrator.host."""
    port: int | None = None
    """0: a free one; -1: no HTTP. null: 8000, or a free one where orchestrator.port is 0, so that orchestrators with
    free ports do not meet."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call the API from a browser, such as `https://chat.example`; `*`: all. The playground
    needs none: it comes from here."""
    max_choices: int = 128
    """Answers of one request at most (`n` times the prompts): OpenAI's limit. Each is a request in the queue."""
    keep_alive_timeout_s: int = 75
    """An idle connection is closed after this long: later than clients let go of theirs, or they would send requests
    into connections that are being closed."""

    def __post_init__(self) -> None:
        require(
            self.port is None or -1 <= self.port <= 65535,
            "orchestrator.http.port must be between 0 and 65535, or -1 (no HTTP)",
        )
        require(self.max_choices >= 1, "orchestrator.http.max_choices must be at least 1")
        require(self.keep_alive_timeout_s >= 1, "orchestrator.http.keep_alive_timeout_s must be at least 1")
