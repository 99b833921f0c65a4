"""Configuration of the orchestrator."""

from __future__ import annotations

from dataclasses import dataclass, field

from pilotfish.config.fields import STRICT, require
from pilotfish.config.speculation import SpeculationConfig


@dataclass(frozen=True, kw_only=True)
class OrchestratorConfig:
    """The orchestrator: the public API."""

    __pydantic_config__ = STRICT

    host: str = "127.0.0.1"
    port: int = 50051
    target_addresses: tuple[str, ...] = ()
    """host:port of each target replica; empty under Ray, which finds them, and in `pilotfish up`."""
    draft_addresses: tuple[str, ...] = ()
    """host:port of each draft replica; empty: none, or found by Ray."""
    max_concurrent_requests: int = 256
    """More are refused with RESOURCE_EXHAUSTED."""
    max_prompt_bytes: int = 4_000_000
    """Longer prompts are refused before tokenising."""
    connect_timeout_s: float = 60.0
    """A request waits this long for a target replica before UNAVAILABLE, and for room on one before
    RESOURCE_EXHAUSTED."""
    slow_reader_tokens: int = 1024
    """Output tokens buffered for a client that reads slowly before its sequence pauses."""
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)

    def __post_init__(self) -> None:
        require(0 <= self.port <= 65535, "orchestrator.port must be between 0 and 65535")
        require(self.max_concurrent_requests >= 1, "orchestrator.max_concurrent_requests must be at least 1")
        require(self.max_prompt_bytes >= 1, "orchestrator.max_prompt_bytes must be at least 1")
        require(self.connect_timeout_s > 0, "orchestrator.connect_timeout_s must be above 0")
        require(self.slow_reader_tokens >= 1, "orchestrator.slow_reader_tokens must be at least 1")
