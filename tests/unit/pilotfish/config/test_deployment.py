"""The pools' section refuses what Ray could not do."""

import pytest

from pilotfish.config import config_from_yaml, config_to_yaml, load_config
from pilotfish.errors import ConfigError


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("deployment.draft.num_gpus=1.5", "Ray gives shares of one GPU, or whole ones"),
        ("deployment.draft.num_gpus=-1", "num_gpus must be at least 0"),
        ("deployment.target.autoscaling.min_replicas=0", "min_replicas must be at least 1"),
        ("deployment.target.autoscaling={min_replicas: 3, max_replicas: 2}", "max_replicas must be at least min"),
        ("deployment.target.autoscaling.target_sequences=0", "target_sequences must be above 0"),
        ("deployment.target.autoscaling.target_kv_usage=1.1", "target_kv_usage must be above 0 and at most 1"),
        ("deployment.target.autoscaling.look_back_s=5", "look_back_s must exceed report_interval_s"),
        ("deployment.orchestrator.autoscaling.max_replicas=2", "there is no such key"),
        ("deployment.draft.surge_percent=101", "surge_percent must be between 0 and 100"),
        ("deployment.draft.resources={fish: 0}", "resources must be above 0"),
        ("deployment.orchestrator.drain_s=-1", "drain_s must be at least 0"),
        ("orchestrator.num_replicas=0", "orchestrator.num_replicas must be at least 1"),
    ],
)
def test_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(overrides=[override])


def test_labels_survive_the_yaml() -> None:
    config = load_config(overrides=["deployment.draft.labels={ray.io/accelerator-type: L4}"])
    assert config_from_yaml(config_to_yaml(config)) == config
    assert config.deployment.draft.labels == {"ray.io/accelerator-type": "L4"}
