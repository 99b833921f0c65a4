"""Configuration of the orchestrator."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pilotfish.config.fields import STRICT, require
from pilotfish.config.http import DEFAULT_HTTP_PORT, HttpConfig
from pilotfish.config.routing import RoutingConfig
from pilotfish.config.speculation import SpeculationConfig

DNS_PREFIX = "dns:///"
"""Of an address that stands for all addresses of a name; gRPC's own way to write it."""
_HOST_AND_PORT = re.compile(r"(?P<host>.+):(?P<port>[0-9]{1,5})")


def is_address(text: str) -> bool:
    """Whether it is host:port or dns:///NAME:PORT."""
    match = _HOST_AND_PORT.fullmatch(text.removeprefix(DNS_PREFIX))
    return match is not None and 1 <= int(match["port"]) <= 65535


@dataclass(frozen=True, kw_only=True)
class OrchestratorConfig:
    """The orchestrator: the public API."""

    __pydantic_config__ = STRICT

    host: str = "127.0.0.1"
    """Address to listen on, for gRPC and for HTTP."""
    port: int = 50051
    """Of the gRPC API; 0 takes a free port."""
    num_replicas: int = 1
    """Replicas under Ray Serve. They share the pools; clients need a load balancer before them."""
    target_addresses: tuple[str, ...] = ()
    """host:port of each target replica; empty under Ray, which finds them, and in `pilotfish up`. `dns:///NAME:PORT`
    is every address that the name has, such as the pods of a headless Service."""
    draft_addresses: tuple[str, ...] = ()
    """host:port of each draft replica, or names as above; empty: none, or found by Ray."""
    resolve_interval_s: float = 2.0
    """Names in the addresses are looked up this often. A replica that leaves is noticed by its link at once; this is
    how soon a new one is found."""
    max_concurrent_requests: int = 256
    """Served at once, and never more than the target replicas have room for (engine.max_sequences). More wait."""
    max_queued_requests: int = 1024
    """That wait for their turn, over all clients; more are refused with RESOURCE_EXHAUSTED and a hint when to try
    again. 0: nobody waits."""
    max_queued_requests_per_client: int = 512
    """Of one client (gRPC metadata `x-client-id`, else the peer's address): it leaves the others room to queue."""
    max_queue_time_s: float = 60.0
    """A request waits this long for its turn before RESOURCE_EXHAUSTED; less if the call's own deadline is sooner."""
    max_prompt_bytes: int = 4_000_000
    """Longer prompts are refused before tokenising."""
    connect_timeout_s: float = 60.0
    """A request waits this long for a target replica before UNAVAILABLE; one that has not begun to answer also
    for room on one before RESOURCE_EXHAUSTED."""
    silence_timeout_s: float = 3.0
    """A replica that says nothing for this long is lost, and its requests go on elsewhere. Replicas report twice a
    second, from a process that computes nothing: six reports in a row do not get lost by chance, while each second
    more is a second that every stream on a frozen replica stands still."""
    slow_reader_tokens: int = 1024
    """Output tokens buffered for a client that reads slowly before its sequence pauses."""
    stream_interval_tokens: int = 1
    """Fewer tokens are not sent to the client alone (vLLM's stream_interval), but at an answer's begin and end. 1 sends
    at once; tokens that wait for a busy orchestrator or a slow client travel together in any case."""
    http: HttpConfig = field(default_factory=HttpConfig)
    routing: RoutingConfig = field(default_factory=RoutingConfig)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)

    def __post_init__(self) -> None:
        require(0 <= self.port <= 65535, "orchestrator.port must be between 0 and 65535")
        require(self.num_replicas >= 1, "orchestrator.num_replicas must be at least 1")
        for address in (*self.target_addresses, *self.draft_addresses):
            require(
                is_address(address),
                f"orchestrator: {address!r} is not an address: host:port, or dns:///NAME:PORT",
            )
        require(self.resolve_interval_s > 0, "orchestrator.resolve_interval_s must be above 0")
        require(self.max_concurrent_requests >= 1, "orchestrator.max_concurrent_requests must be at least 1")
        require(self.max_queued_requests >= 0, "orchestrator.max_queued_requests must be at least 0 (0: nobody waits)")
        require(
            self.max_queued_requests_per_client >= 1, "orchestrator.max_queued_requests_per_client must be at least 1"
        )
        require(self.max_queue_time_s > 0, "orchestrator.max_queue_time_s must be above 0")
        require(
            self.silence_timeout_s >= 1,
            "orchestrator.silence_timeout_s must be at least 1: reports come twice a second",
        )
        require(self.max_prompt_bytes >= 1, "orchestrator.max_prompt_bytes must be at least 1")
        require(self.connect_timeout_s > 0, "orchestrator.connect_timeout_s must be above 0")
        require(self.slow_reader_tokens >= 1, "orchestrator.slow_reader_tokens must be at least 1")
        require(self.stream_interval_tokens >= 1, "orchestrator.stream_interval_tokens must be at least 1")

    @property
    def http_host(self) -> str:
        """Where the HTTP API listens."""
        return self.http.host or self.host

    @property
    def http_port(self) -> int:
        """The same; 0: on a free port, -1: nowhere."""
        if self.http.port is not None:
            return self.http.port
        return DEFAULT_HTTP_PORT if self.port else 0
