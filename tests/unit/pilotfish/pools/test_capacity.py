"""Room for the pools is checked before anything starts, and what is missing is named."""

import pytest

from pilotfish.config import load_config
from pilotfish.errors import ConfigError
from pilotfish.pools.capacity import check_room, demand
from pilotfish.pools.options import pools, scaling_options


def check(num_gpus: int, *overrides: str) -> None:
    config = load_config(overrides=list(overrides))
    check_room([demand(scaling_options(config, pool)) for pool in pools(config)], 8, num_gpus)


def test_what_fits_is_accepted() -> None:
    check(0)
    check(3, "deployment.target.num_gpus=2", "deployment.draft.num_gpus=0.5")
    check(2, "draft.num_replicas=4", "deployment.draft.num_gpus=0.5")


def test_too_many_gpus_name_the_pool_and_what_to_change() -> None:
    with pytest.raises(ConfigError) as refused:
        check(4, "target.num_replicas=3", "deployment.target.num_gpus=2")
    message = str(refused.value)
    assert "the target pool wants 3 replicas of 0.1 CPU, 2 GPU each, and this machine has room for 2" in message
    assert "lower target.num_replicas or deployment.target.num_gpus" in message
    assert "draft" not in message


def test_pools_share_what_there_is() -> None:
    check(2, "deployment.target.num_gpus=1", "deployment.draft.num_gpus=1")
    with pytest.raises(ConfigError, match=r"draft pool wants .* room for 0 beside the other pools"):
        check(2, "deployment.target.num_gpus=2", "deployment.draft.num_gpus=0.5")
    with pytest.raises(ConfigError, match=r"room for 2 .*deployment\.draft\.num_cpus"):
        check(0, "draft.num_replicas=3", "deployment.draft.num_cpus=3")


def test_a_share_is_of_one_gpu() -> None:
    with pytest.raises(ConfigError, match=r"3 replicas of 0.1 CPU, 0.6 GPU each, and this machine has room for 2"):
        check(2, "draft.num_replicas=3", "deployment.draft.num_gpus=0.6")


def test_of_an_autoscaled_pool_what_it_starts_with_must_fit() -> None:
    scaled = ("deployment.draft.autoscaling={min_replicas: 2, max_replicas: 4}", "deployment.draft.num_gpus=1")
    check(2, *scaled)
    with pytest.raises(ConfigError, match=r"deployment\.draft\.autoscaling\.min_replicas"):
        check(1, *scaled)


def test_the_ranks_of_a_replica_have_a_gpu_each() -> None:
    options = {
        "name": "target",
        "num_replicas": 1,
        "ray_actor_options": {"num_cpus": 1, "num_gpus": 1},
        "placement_group_bundles": [{"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}],
    }
    check_room([demand(options)], 8, 2)
    with pytest.raises(ConfigError, match=r"1 replica of 2 CPU, 2 GPU each.*room for 0"):
        check_room([demand(options)], 8, 1)
