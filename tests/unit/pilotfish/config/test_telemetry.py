import pytest

from pilotfish.config.config import config_from_dict
from pilotfish.config.telemetry import TelemetryConfig
from pilotfish.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"otlp_endpoint": "localhost:4317"}, "http:// or https://"),
        ({"trace_sampling": 1.5}, "trace_sampling"),
        ({"max_round_spans": 1}, "max_round_spans"),
        ({"metrics_export_interval_s": -1}, "metrics_export_interval_s"),
    ],
)
def test_values_that_cannot_be(values, message) -> None:
    with pytest.raises(ConfigError, match=message):
        TelemetryConfig(**values)


def test_off_without_quotes_is_off() -> None:
    assert config_from_dict({"telemetry": {"round_spans": False}}).telemetry.round_spans == "off"


@pytest.mark.parametrize("service", ["target", "draft"])
def test_a_metrics_port_is_a_port_or_none(service) -> None:
    assert config_from_dict({service: {"metrics_port": -1}})
    with pytest.raises(ConfigError, match=f"{service}.metrics_port"):
        config_from_dict({service: {"metrics_port": 70000}})
