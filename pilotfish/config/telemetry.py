"""Configuration of traces, metrics and logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator

from pilotfish.config.fields import STRICT, require, yaml_word


@dataclass(frozen=True, kw_only=True)
class TelemetryConfig:
    """What the services tell about themselves. Metrics for Prometheus cost nothing until they are read.

    OpenTelemetry's environment variables OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE and
    OTEL_RESOURCE_ATTRIBUTES hold as well.
    """

    __pydantic_config__ = STRICT

    otlp_endpoint: str = ""
    """URL of a collector that takes OTLP over gRPC: `http://127.0.0.1:4317`, or `https://` for TLS. Empty: nothing is
    exported."""
    trace_sampling: float = 1.0
    """Share of the requests that are traced, where the caller has not decided it (its `traceparent`)."""
    round_spans: Annotated[Literal["off", "sampled", "all"], BeforeValidator(yaml_word)] = "sampled"
    """Spans of the rounds of a traced request, three or four each. `sampled`: at most max_round_spans rounds of a
    request, spread evenly over it; a long answer has thousands."""
    max_round_spans: int = 16
    """Of a request, where round_spans is `sampled`."""
    metrics_export_interval_s: float = 0.0
    """The metrics go to otlp_endpoint, too, this often; 0: they do not. OpenTelemetry's own default is 60."""
    metrics_host: str = "127.0.0.1"
    """Interface of `target.metrics_port` and `draft.metrics_port`."""
    log_format: Literal["human", "json"] = "human"
    """One line for people, or one JSON object a line. Both carry the trace id where there is one."""

    def __post_init__(self) -> None:
        require(
            not self.otlp_endpoint or self.otlp_endpoint.startswith(("http://", "https://")),
            f"telemetry.otlp_endpoint is {self.otlp_endpoint!r}; it must begin with http:// or https://",
        )
        require(0 <= self.trace_sampling <= 1, "telemetry.trace_sampling must be between 0 and 1")
        require(self.max_round_spans >= 2, "telemetry.max_round_spans must be at least 2")
        require(self.metrics_export_interval_s >= 0, "telemetry.metrics_export_interval_s must be at least 0 (0: off)")
