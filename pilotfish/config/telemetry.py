"""Configuration of traces, metrics and logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt

from pilotfish.config.fields import STRICT, Host, Share, require


@dataclass(frozen=True, kw_only=True)
class TracingConfig:
    """Which requests are traced, and where the traces go: what pilotfish.integrations.vllm takes as well."""

    __pydantic_config__ = STRICT

    otlp_endpoint: str = ""
    """Collector for OTLP over gRPC: `http://127.0.0.1:4317`, or `https://` for TLS. Empty: OTEL_EXPORTER_OTLP_ENDPOINT,
    else no export."""
    trace_sampling: Share | None = None
    """Share of requests traced, unless the caller's `traceparent` decides. null: OTEL_TRACES_SAMPLER, else all."""

    def __post_init__(self) -> None:
        require(
            not self.otlp_endpoint or self.otlp_endpoint.startswith(("http://", "https://")),
            f"telemetry.otlp_endpoint is {self.otlp_endpoint!r}; it must begin with http:// or https://",
        )


def _yaml_prefix(value: object) -> object:
    """`vllm:` as it was written: YAML reads a mapping."""
    return f"{next(iter(value))}:" if isinstance(value, dict) and list(value.values()) == [None] else value


@dataclass(frozen=True, kw_only=True)
class TelemetryConfig(TracingConfig):
    """Traces, metrics and logs ([observability](observability.md))."""

    max_round_spans: NonNegativeInt = 16
    """Maximum rounds of a traced request that get spans, four each."""
    metrics_prefix: Annotated[str, Field(pattern="^[a-zA-Z_:][a-zA-Z0-9_:]*$"), BeforeValidator(_yaml_prefix)] = (
        "pilotfish_"
    )
    """Prefix of metric names. With `vllm:`, vLLM's dashboards and the Gateway API's endpoint picker work."""
    metrics_host: Host = "127.0.0.1"
    """Address of `target.metrics_port` and `draft.metrics_port`."""
    log_format: Literal["human", "json"] = "human"
    """`human`: a line of text. `json`: an object per line."""
