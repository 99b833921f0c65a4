"""The file for `serve deploy`: what a change restarts, and what it does not."""

from typing import Any

from pilotfish.config import config_from_dict, load_config
from pilotfish.pools.options import APPLICATIONS, application_args, serve_file
from tests.support.serve_schema import unknown_keys


def applications(*overrides: str) -> dict[str, dict[str, Any]]:
    listed = serve_file(load_config(overrides=list(overrides)))["applications"]
    return {application["name"]: application for application in listed}


BEFORE = applications()


def restarted(*overrides: str) -> set[str]:
    """Applications whose args a setting changes: Serve replaces their replicas."""
    after = applications(*overrides)
    return {name for name in BEFORE if BEFORE[name]["args"] != after[name]["args"]}


def test_one_application_per_pool() -> None:
    assert list(applications()) == ["pilotfish-target", "pilotfish-draft", "pilotfish"]
    assert list(applications("draft.num_replicas=0")) == ["pilotfish-target", "pilotfish"]
    learning = applications("draft.learning.enabled=true")
    assert list(learning) == ["pilotfish-target", "pilotfish-draft", "pilotfish", "pilotfish-trainer"]
    for pool, name in APPLICATIONS.items():
        (deployment,) = learning[name]["deployments"]
        assert deployment["name"] == pool


def test_the_trainer_is_one_where_its_pool_says_with_a_gpu_if_it_computes_on_one() -> None:
    def trainer(*overrides: str) -> dict[str, Any]:
        learning = applications("draft.learning.enabled=true", *overrides)
        (deployment,) = learning["pilotfish-trainer"]["deployments"]
        return dict(deployment)

    assert trainer("target.num_replicas=3", "deployment.trainer.labels={pool: draft}") == {
        "name": "trainer",
        "num_replicas": 1,
        "ray_actor_options": {"num_cpus": 0.1, "num_gpus": 0.0, "label_selector": {"pool": "draft"}},
    }
    assert trainer("draft.learning.device=cuda")["ray_actor_options"]["num_gpus"] == 1.0


def test_serve_knows_every_key() -> None:
    overrides = [
        "deployment.target.autoscaling.max_replicas=3",
        "deployment.draft.labels={pool: draft}",
        "deployment.draft.surge_percent=100",
        "orchestrator.num_replicas=2",
    ]
    written = serve_file(load_config(overrides=overrides))
    assert unknown_keys(written) == []
    written["applications"][0]["deployments"][0]["num_replica"] = 2
    written["applications"][0]["deployments"][0]["autoscaling_config"]["max_replica"] = 2
    assert unknown_keys(written) == [".applications.0.deployments.0.num_replica", ".max_replica"]


def test_scaling_and_placement_restart_nothing_through_args() -> None:
    for change in (
        "target.num_replicas=3",
        "draft.num_replicas=2",
        "orchestrator.num_replicas=2",
        "deployment.target.autoscaling.max_replicas=4",
        "deployment.draft.labels={pool: draft}",
    ):
        assert restarted(change) == set(), change


def test_what_restarts_what() -> None:
    everything = {"pilotfish-target", "pilotfish-draft", "pilotfish"}
    assert restarted("orchestrator.speculation.num_speculative_tokens=3") == {"pilotfish"}
    assert restarted("security.public.max_connections=9") == {"pilotfish"}
    assert restarted("target.engine.kv_cache_tokens=4096") == {"pilotfish-target"}
    assert restarted("draft.engine.num_threads=2") == {"pilotfish-draft"}
    assert restarted("target.model=other") == everything
    assert restarted("emulation.profile=instant") == everything
    assert restarted("deployment.orchestrator.drain_s=9") == everything


def test_args_load_as_what_the_pool_runs_with() -> None:
    config = load_config(
        overrides=["target.engine.kv_cache_tokens=4096", "target.host=0.0.0.0", "deployment.orchestrator.drain_s=9"]
    )
    assert config_from_dict(application_args(config, "target")).target == config.target
    assert config_from_dict(application_args(config, "draft")).draft == config.draft
    assert config_from_dict(application_args(config, "orchestrator")).orchestrator == config.orchestrator
    for pool in APPLICATIONS:
        assert config_from_dict(application_args(config, pool)).deployment.orchestrator.drain_s == 9
