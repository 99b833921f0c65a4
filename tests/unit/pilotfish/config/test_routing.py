import pytest

from pilotfish.config import config_from_dict
from pilotfish.errors import ConfigError


def test_routing_is_read_from_its_section() -> None:
    config = config_from_dict({"orchestrator": {"routing": {"policy": "least_loaded", "cache_threshold": 0.5}}})
    assert config.orchestrator.routing.policy == "least_loaded"
    assert config.orchestrator.routing.cache_threshold == 0.5
    assert config_from_dict({}).orchestrator.routing.policy == "prefix_aware"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("policy", "random"),
        ("cache_threshold", 1.5),
        ("balance_abs_threshold", -1),
        ("balance_rel_threshold", 0.5),
        ("max_kv_usage", 0),
        ("max_prefix_blocks", 0),
    ],
)
def test_values_out_of_range_are_refused_by_name(key, value) -> None:
    with pytest.raises(ConfigError, match=key):
        config_from_dict({"orchestrator": {"routing": {key: value}}})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_queued_requests", -1),
        ("max_queued_requests_per_client", 0),
        ("max_queue_time_s", 0),
        ("silence_timeout_s", 0.9),
    ],
)
def test_bounds_of_the_queue_and_of_silence_are_checked(key, value) -> None:
    with pytest.raises(ConfigError, match=key):
        config_from_dict({"orchestrator": {key: value}})
