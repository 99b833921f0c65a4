"""Options of the deployments, from the configuration."""

import pytest

from pilotfish.config import Config, load_config
from pilotfish.errors import ConfigError
from pilotfish.pools.options import (
    computes_on_gpu,
    gpus_per_replica,
    on_reserved_gpus,
    pools,
    scaling_options,
    with_gpus_per_replica,
)

ON_GPU = ("target.engine.device=cuda", "draft.engine.device=cuda:1", "draft.proposer=model")


def config(*overrides: str) -> Config:
    return load_config(overrides=list(overrides))


def test_defaults_reserve_next_to_nothing() -> None:
    assert scaling_options(Config(), "target") == {
        "name": "target",
        "ray_actor_options": {"num_cpus": 0.1, "num_gpus": 0.0},
        "num_replicas": 1,
    }


def test_placement_and_shares() -> None:
    options = scaling_options(
        config(
            "deployment.draft.labels={ray.io/accelerator-type: 'in(L4,A10G)'}",
            "deployment.draft.num_gpus=0.25",
            "deployment.draft.num_cpus=2",
            "deployment.draft.resources={fish: 1}",
            "deployment.draft.max_replicas_per_node=4",
            "deployment.draft.surge_percent=50",
            "draft.num_replicas=3",
        ),
        "draft",
    )
    assert options == {
        "name": "draft",
        "ray_actor_options": {
            "num_cpus": 2,
            "num_gpus": 0.25,
            "resources": {"fish": 1},
            "label_selector": {"ray.io/accelerator-type": "in(L4,A10G)"},
        },
        "num_replicas": 3,
        "max_replicas_per_node": 4,
        "max_surge_percent": 50,
    }


def test_autoscaling_in_serves_words() -> None:
    section = "deployment.target.autoscaling"
    options = scaling_options(
        config(
            f"{section}.max_replicas=4",
            f"{section}.min_replicas=2",
            f"{section}.target_sequences=48",
            f"{section}.target_kv_usage=0.7",
            f"{section}.look_back_s=20",
            f"{section}.upscale_delay_s=5",
            f"{section}.downscale_delay_s=60",
        ),
        "target",
    )
    assert "num_replicas" not in options
    assert options["autoscaling_config"] == {
        "min_replicas": 2,
        "initial_replicas": 2,
        "max_replicas": 4,
        "target_ongoing_requests": 48,
        "metrics_interval_s": 10.0,
        "look_back_period_s": 20,
        "upscale_delay_s": 5,
        "downscale_delay_s": 60,
        "policy": {
            "policy_function": "pilotfish.pools.autoscaling:LoadPolicy",
            "policy_kwargs": {"target_kv_usage": 0.7},
        },
    }


def test_one_gpu_where_a_replica_computes_on_one() -> None:
    on_gpu = config(*ON_GPU)
    assert [gpus_per_replica(on_gpu, pool) for pool in pools(on_gpu)] == [1.0, 1.0, 0.0]
    assert gpus_per_replica(config(*ON_GPU, "deployment.draft.num_gpus=0.5"), "draft") == 0.5
    assert not computes_on_gpu(config(*ON_GPU, "draft.proposer=suffix"), "draft"), "lookups need none"
    assert not computes_on_gpu(config(*ON_GPU, "emulation.profile=instant"), "target")


def test_a_share_fills_in_only_what_is_not_set() -> None:
    shared = with_gpus_per_replica(config(*ON_GPU, "deployment.draft.num_gpus=0.2"), 0.5)
    assert gpus_per_replica(shared, "target") == 0.5
    assert gpus_per_replica(shared, "draft") == 0.2
    assert with_gpus_per_replica(Config(), 0.5) == Config()


def test_ranks_are_packed_on_one_node() -> None:
    ranks = config(*ON_GPU, "target.tensor_parallel_size=2", "deployment.target.labels={gpu: H100}")
    options = scaling_options(ranks, "target")
    assert options["ray_actor_options"] == {"num_cpus": 0.1, "num_gpus": 1.0}, "rank 0 is the replica's own engine"
    assert options["placement_group_bundles"] == [{"CPU": 0.1, "GPU": 1.0}] * 2
    assert options["placement_group_strategy"] == "STRICT_PACK"
    assert options["placement_group_bundle_label_selector"] == [{"gpu": "H100"}] * 2


def test_ranks_do_not_share_a_gpu() -> None:
    with pytest.raises(ConfigError, match=r"size is 2 and 0\.5 of a GPU .* one of its own"):
        scaling_options(config(*ON_GPU, "target.tensor_parallel_size=2", "deployment.target.num_gpus=0.5"), "target")


def test_a_replica_computes_on_the_gpu_that_ray_gives_it() -> None:
    """Each sees that one alone, by the name cuda."""
    reserved = on_reserved_gpus(config(*ON_GPU, "draft.learning.device=cuda:2"))
    assert (reserved.target.engine.device, reserved.draft.engine.device) == ("cuda", "cuda")
    assert reserved.draft.learning.device == "cuda"
    assert on_reserved_gpus(config()) == config()
