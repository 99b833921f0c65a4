"""Configuration of the orchestrator: its HTTP API and its choice among replicas included."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from pilotfish.config.fields import STRICT, Host, OptionalPort, Port, PositiveShare, Share, require
from pilotfish.config.paths import PathText
from pilotfish.config.speculation import SpeculationConfig


@dataclass(frozen=True, kw_only=True)
class RoutingConfig:
    """Choice of a target replica."""

    __pydantic_config__ = STRICT

    policy: Literal["prefix_aware", "least_loaded"] = "prefix_aware"
    """Replicas are chosen by [cached prefix](routing.md) while loads stay even, or by load alone."""
    cache_threshold: Share = 0.3
    """Share of the prompt that must be cached; below it, load decides."""
    balance_abs_threshold: NonNegativeInt = 8
    """A cached prefix counts only on replicas with at most `balance_rel_threshold` times the least loaded one's
    sequences, plus this."""
    balance_rel_threshold: Annotated[float, Field(ge=1)] = 1.5
    """See balance_abs_threshold. At least 1."""
    max_kv_usage: PositiveShare = 0.9
    """A cached prefix counts only on replicas with at most this share of KV blocks in use."""
    max_prefix_blocks: PositiveInt = 65536
    """Prefix blocks of 16 tokens remembered per replica, at some 100 bytes each."""


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#\s]+")
"""What a browser says: a scheme, a host and perhaps a port."""
DEFAULT_HTTP_PORT = 8000
"""Where clients of vLLM and others look."""


@dataclass(frozen=True, kw_only=True)
class HttpConfig:
    """The OpenAI-compatible HTTP API, served by the orchestrator."""

    __pydantic_config__ = STRICT

    host: Host = ""
    """Address to listen on; empty: orchestrator.host."""
    port: OptionalPort | None = None
    """Port; 0: a free one, -1: no HTTP. null: 8000, or a free one if orchestrator.port is 0."""
    probe_port: OptionalPort = -1
    """Port of `/health` and `/ready` alone, for Kubernetes' probes, without TLS. -1: none."""
    allowed_hosts: tuple[str, ...] = ()
    """Names (`models.example`, `*.example`; `*`: any) that clients may call the server by if no API keys are set
    ([SECURITY.md](../SECURITY.md))."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call the API, such as `https://chat.example`; `*`: all."""
    max_held_body_bytes: PositiveInt = 64_000_000
    """Maximum bytes of HTTP bodies and gRPC messages in memory, but for the first 64 KiB of each; beyond, requests get
    429, calls RESOURCE_EXHAUSTED."""
    max_choices: PositiveInt = 128
    """Maximum answers per request (`n` times prompts)."""
    strict_fields: bool = False
    """Refuse unknown fields with 400, instead of naming them in the header `x-pilotfish-ignored-fields`."""
    reasoning_parser: Literal[
        "auto", "none", "deepseek_r1", "qwen3", "glm45", "mistral", "seed_oss", "openai_gptoss", "granite"
    ] = "auto"
    """Marks of reasoning in answers. `auto`: from the chat template. `none`: reasoning stays in the answer."""
    tool_call_parser: Literal["auto", "hermes", "llama3_json", "mistral", "deepseek_v3", "deepseek_v31", "openai"] = (
        "auto"
    )
    """Format of tool calls. `auto`: from the chat template."""
    keep_alive_timeout_s: PositiveInt = 75
    """Idle connections are closed after this. Keep it above the clients' own."""

    def __post_init__(self) -> None:
        for name in self.allowed_hosts:
            require(
                not set("/: ") & set(name),
                f"orchestrator.http.allowed_hosts: {name!r} is not a name alone, such as models.example",
            )
        for origin in self.cors_origins:
            require(
                origin == "*" or _ORIGIN.fullmatch(origin) is not None,
                f"orchestrator.http.cors_origins: {origin!r} is not an origin alone, such as https://chat.example",
            )


DNS_PREFIX = "dns:///"
"""Prefix of an address that stands for all addresses of a name; gRPC's own way to write it."""
_HOST_AND_PORT = re.compile(r"(?P<host>.+):(?P<port>[0-9]{1,5})")


def is_address(text: str) -> bool:
    """Whether it is host:port or dns:///NAME:PORT."""
    match = _HOST_AND_PORT.fullmatch(text.removeprefix(DNS_PREFIX))
    return match is not None and 1 <= int(match["port"]) <= 65535


@dataclass(frozen=True, kw_only=True)
class OrchestratorConfig:
    """The public API."""

    __pydantic_config__ = STRICT

    host: Host = "127.0.0.1"
    """Address of gRPC and, by default, HTTP."""
    port: Port = 50051
    """Port of the gRPC API; 0: a free one."""
    num_replicas: PositiveInt = 1
    """Replicas under Ray Serve."""
    served_model_name: tuple[str, ...] = ()
    """Names of the model in requests; answers carry the first. Empty: the target's own."""
    chat_template: PathText = ""
    """Jinja file in place of the model's chat template."""
    generation_config: Literal["auto", "none"] = "auto"
    """[Sampling](models.md#sampling-defaults) of requests that leave a field out. `auto`: the model's
    generation_config.json. `none`: temperature 1 (vLLM's `vllm`)."""
    target_addresses: tuple[str, ...] = ()
    """The `host:port` of each target replica; `dns:///NAME:PORT` is every address of a name. Empty under Ray and
    `pilotfish up`."""
    draft_addresses: tuple[str, ...] = ()
    """The `host:port` of each draft replica, as for target replicas; empty: none."""
    resolve_interval_s: PositiveFloat = 2.0
    """How often names are looked up."""
    max_concurrent_requests: PositiveInt = 256
    """Maximum requests served at once, fewer if the target replicas hold fewer. Others queue."""
    max_queued_requests: NonNegativeInt = 1024
    """Maximum queued requests. Others get RESOURCE_EXHAUSTED and a retry hint. 0: no queue."""
    max_queued_requests_per_client: PositiveInt = 512
    """Maximum queued requests per [client](routing.md#who-is-next)."""
    max_queue_time_s: PositiveFloat = 60.0
    """Maximum time in the queue, then RESOURCE_EXHAUSTED."""
    max_prompt_bytes: PositiveInt = 4_000_000
    """Maximum size of a request (over gRPC at least 4 MiB)."""
    max_listed_tokens: PositiveInt = 1024
    """Maximum entries of `logit_bias`, `stop_token_ids` and `allowed_token_ids`, each."""
    connect_timeout_s: PositiveFloat = 60.0
    """How long a request waits for a target replica (then UNAVAILABLE) and for room on one (then
    RESOURCE_EXHAUSTED)."""
    silence_timeout_s: Annotated[float, Field(ge=1)] = 3.0
    """A replica silent for this long is lost, and its requests move."""
    slow_reader_tokens: PositiveInt = 1024
    """Output tokens buffered for a slow client before its sequence pauses."""
    stream_interval_tokens: PositiveInt = 1
    """Minimum tokens per message, except at an answer's start and end."""
    num_threads: PositiveInt = 2
    """Threads that read large bodies and prompts and write long log-probabilities."""
    max_prompt_logprobs: PositiveInt = 131_072
    """Maximum log-probabilities of prompt tokens of a request: tokens times (likeliest + 1) times answers."""
    http: HttpConfig = field(default_factory=HttpConfig)
    """The OpenAI-compatible HTTP API."""
    routing: RoutingConfig = field(default_factory=RoutingConfig)
    """Choice of a target replica."""
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    """Defaults of speculation."""

    def __post_init__(self) -> None:
        for address in (*self.target_addresses, *self.draft_addresses):
            require(
                is_address(address),
                f"orchestrator: {address!r} is not an address: host:port, or dns:///NAME:PORT",
            )

    @property
    def http_host(self) -> str:
        """Address at which the HTTP API listens."""
        return self.http.host or self.host

    @property
    def http_port(self) -> int:
        """Port on which the HTTP API listens; 0: a free one, -1: none."""
        if self.http.port is not None:
            return self.http.port
        return DEFAULT_HTTP_PORT if self.port else 0
