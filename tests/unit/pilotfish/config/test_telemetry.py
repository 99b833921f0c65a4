"""The prefix of metrics, as people write it."""

import pytest

from pilotfish.config import load_config
from pilotfish.errors import ConfigError


@pytest.mark.parametrize(("written", "prefix"), [("vllm:", "vllm:"), ("'vllm:'", "vllm:"), ("vllm_", "vllm_")])
def test_a_prefix_may_end_in_a_colon(written: str, prefix: str) -> None:
    assert load_config(overrides=[f"telemetry.metrics_prefix={written}"]).telemetry.metrics_prefix == prefix


@pytest.mark.parametrize("written", ["'1x'", "a-b", "{vllm: 1}"])
def test_other_things_are_no_prefix(written: str) -> None:
    with pytest.raises(ConfigError, match=r"telemetry\.metrics_prefix"):
        load_config(overrides=[f"telemetry.metrics_prefix={written}"])
