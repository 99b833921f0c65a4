"""A configuration for a cluster, fitted to one machine."""

import pytest

from pilotfish.config import Config, load_config
from pilotfish.errors import ConfigError
from pilotfish.pools.options import gpus_per_replica
from pilotfish.serve_app.local import for_this_machine

ON_GPU = ("target.engine.device=cuda", "draft.engine.device=cuda", "draft.proposer=model", "draft.num_replicas=2")


def config(*overrides: str) -> Config:
    return load_config(overrides=list(overrides))


def test_replicas_share_the_gpus_there_are() -> None:
    assert gpus_per_replica(for_this_machine(config(*ON_GPU), 8), "target") == 1.0
    shared = for_this_machine(config(*ON_GPU), 1)
    assert gpus_per_replica(shared, "target") == 0.33
    assert gpus_per_replica(shared, "draft") == 0.33
    with pytest.raises(ConfigError, match="no GPU"):
        for_this_machine(config(*ON_GPU), 0)


def test_prompt_lookup_needs_no_gpu() -> None:
    fitted = for_this_machine(config("draft.engine.device=cuda"), 0)
    assert gpus_per_replica(fitted, "draft") == 0


def test_the_machine_is_a_node_of_every_pool() -> None:
    fitted = for_this_machine(
        config(
            "deployment.target.labels={pool: target}",
            "deployment.draft.resources={fish: 1}",
            "deployment.draft.num_gpus=0.5",
            "orchestrator.num_replicas=3",
        ),
        1,
    )
    assert not fitted.deployment.target.labels
    assert not fitted.deployment.draft.resources
    assert fitted.deployment.draft.num_gpus == 0.5
    assert fitted.orchestrator.num_replicas == 1, "there is one public port"
