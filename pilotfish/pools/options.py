"""What Ray Serve gets for each pool: options of its deployment, as plain values in Serve's words."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypeVar

import yaml

from pilotfish.config import (
    AutoscalingConfig,
    Config,
    EngineConfig,
    LearningConfig,
    PoolConfig,
    config_to_yaml,
    default_cache_dir,
)
from pilotfish.drafter_registry import LOOKUPS
from pilotfish.errors import ConfigError

Pool = Literal["target", "draft", "orchestrator", "trainer"]
"""A pool, by the name that its deployment has as well. The trainer's is of one."""

SectionT = TypeVar("SectionT", EngineConfig, LearningConfig)

LOAD_POLICY = "pilotfish.pools.autoscaling:LoadPolicy"
SHUTDOWN_MARGIN_S = 10.0
"""Time from the end of a replica's own drain until Serve kills it."""
UNBOUNDED_CALLS = 1000
"""Calls through handles at once: only the control plane makes any."""


def pools(config: Config) -> tuple[Pool, ...]:
    """The pools that serve and have replicas."""
    return ("target", "draft", "orchestrator") if config.draft.num_replicas else ("target", "orchestrator")


def placement(config: Config, pool: Pool) -> PoolConfig:
    """The pool's section."""
    section = config.deployment
    return {
        "target": section.target,
        "draft": section.draft,
        "orchestrator": section.orchestrator,
        "trainer": section.trainer,
    }[pool]


def autoscaling(config: Config, pool: Pool) -> AutoscalingConfig | None:
    """How the pool scales; None: it does not."""
    scaled = {"target": config.deployment.target, "draft": config.deployment.draft}.get(pool)
    return scaled.autoscaling if scaled is not None and scaled.autoscaling.is_on else None


def num_replicas(config: Config, pool: Pool) -> int:
    """Replicas at the start: with autoscaling within its bounds."""
    wanted = {
        "target": config.target.num_replicas,
        "draft": config.draft.num_replicas,
        "orchestrator": config.orchestrator.num_replicas,
        "trainer": 1,  # two would train the same versions
    }[pool]
    scaling = autoscaling(config, pool)
    return wanted if scaling is None else min(max(wanted, scaling.min_replicas), scaling.max_replicas)


def computes_on_gpu(config: Config, pool: Pool) -> bool:
    """Whether the pool's engines, or the trainer, run on a GPU. Lookups and emulated engines run on none."""
    if pool == "orchestrator" or config.emulation.is_on:
        return False
    if pool == "trainer":
        return config.draft.learning.device.startswith("cuda")
    if pool == "draft":
        return config.draft.engine.device.startswith("cuda") and config.draft.drafter not in LOOKUPS
    return config.target.engine.device.startswith("cuda")


def gpus_per_replica(config: Config, pool: Pool) -> float:
    """GPUs that a replica reserves, or of several ranks each."""
    wanted = placement(config, pool).num_gpus
    if wanted is None:
        return 1.0 if computes_on_gpu(config, pool) else 0.0
    return wanted


def with_gpus_per_replica(config: Config, num_gpus: float) -> Config:
    """The configuration with a number in place of each `num_gpus: null` of a pool that computes on a GPU."""
    deployment = config.deployment
    for pool in ("target", "draft"):
        section = getattr(deployment, pool)
        if section.num_gpus is None and computes_on_gpu(config, pool):
            section = dataclasses.replace(section, num_gpus=num_gpus)
            deployment = dataclasses.replace(deployment, **{pool: section})
    return dataclasses.replace(config, deployment=deployment)


def on_reserved_gpus(config: Config) -> Config:
    """The configuration with `cuda` in place of each `cuda:N`: a replica sees only the GPUs that Ray gives it."""
    target, draft = config.target, config.draft
    target = dataclasses.replace(target, engine=_on_reserved_gpu(target.engine))
    draft = dataclasses.replace(draft, engine=_on_reserved_gpu(draft.engine), learning=_on_reserved_gpu(draft.learning))
    return dataclasses.replace(config, target=target, draft=draft)


def _on_reserved_gpu(section: SectionT) -> SectionT:
    return dataclasses.replace(section, device="cuda") if section.device.startswith("cuda:") else section


def num_ranks(config: Config, pool: Pool) -> int:
    """Processes of a replica that hold a shard of the model each. Emulated engines are never sharded."""
    return config.target.tensor_parallel_size if pool == "target" and not config.emulation.is_on else 1


def scaling_options(config: Config, pool: Pool) -> dict[str, Any]:
    """What may be changed in place, as `deployments` of a file for `serve deploy` lists it."""
    options = {"name": pool, **_resource_options(config, pool)}
    scaling = autoscaling(config, pool)
    if scaling is None:
        options["num_replicas"] = num_replicas(config, pool)
    else:
        options["autoscaling_config"] = _autoscaling_options(scaling, num_replicas(config, pool))
    if limit := _max_replicas_per_node(config, pool):
        options["max_replicas_per_node"] = limit
    if surge_percent := placement(config, pool).surge_percent:
        options["max_surge_percent"] = surge_percent
    return options


def fixed_options(config: Config) -> dict[str, Any]:
    """What is the same for all pools."""
    return {
        "max_ongoing_requests": UNBOUNDED_CALLS,
        "health_check_period_s": 1.0,
        "health_check_timeout_s": 5.0,
        "graceful_shutdown_timeout_s": config.deployment.orchestrator.drain_s + SHUTDOWN_MARGIN_S,
        "graceful_shutdown_wait_loop_s": 0.1,
    }


def _resource_options(config: Config, pool: Pool) -> dict[str, Any]:
    where, num_gpus, ranks = placement(config, pool), gpus_per_replica(config, pool), num_ranks(config, pool)
    if ranks == 1:
        actor: dict[str, Any] = {"num_cpus": where.num_cpus, "num_gpus": num_gpus}
        actor |= {"resources": dict(where.resources)} if where.resources else {}
        actor |= {"label_selector": dict(where.labels)} if where.labels else {}
        return {"ray_actor_options": actor}
    if 0 < num_gpus < 1:
        raise ConfigError(
            f"target.tensor_parallel_size is {ranks} and {num_gpus:g} of a GPU is reserved for each rank, which needs "
            "one of its own: set deployment.target.num_gpus to 1 and have as many GPUs, or lower tensor_parallel_size"
        )
    rank = {"CPU": where.num_cpus} | ({"GPU": num_gpus} if num_gpus else {})
    options: dict[str, Any] = {
        "ray_actor_options": {"num_cpus": where.num_cpus, "num_gpus": num_gpus},
        # The replica, whose engine is rank 0, then the other ranks, all on one node.
        "placement_group_bundles": [rank | dict(where.resources)] + [rank] * (ranks - 1),
        "placement_group_strategy": "STRICT_PACK",
    }
    if where.resources:
        options["ray_actor_options"]["resources"] = dict(where.resources)
    if where.labels:
        options["placement_group_bundle_label_selector"] = [dict(where.labels)] * ranks
    return options


def _autoscaling_options(scaling: AutoscalingConfig, initial_replicas: int) -> dict[str, Any]:
    return {
        "min_replicas": scaling.min_replicas,
        "initial_replicas": initial_replicas,
        "max_replicas": scaling.max_replicas,
        "target_ongoing_requests": scaling.target_sequences,
        "metrics_interval_s": scaling.report_interval_s,
        "look_back_period_s": scaling.look_back_s,
        "upscale_delay_s": scaling.upscale_delay_s,
        "downscale_delay_s": scaling.downscale_delay_s,
        "policy": {"policy_function": LOAD_POLICY, "policy_kwargs": {"target_kv_usage": scaling.target_kv_usage}},
    }


def _max_replicas_per_node(config: Config, pool: Pool) -> int:
    """0: no limit, which is all that Ray knows for replicas of several ranks. Two orchestrators cannot listen on one
    port of a node."""
    if num_ranks(config, pool) > 1:
        return 0
    limit = placement(config, pool).max_replicas_per_node
    has_fixed_port = any(
        port > 0
        for port in (config.orchestrator.port, config.orchestrator.http_port, config.orchestrator.http.probe_port)
    )
    if pool == "orchestrator" and has_fixed_port and config.orchestrator.num_replicas > 1:
        return 1
    return limit


APPLICATIONS: dict[Pool, str] = {
    "target": "pilotfish-target",
    "draft": "pilotfish-draft",
    "orchestrator": "pilotfish",
    "trainer": "pilotfish-trainer",
}
BUILDERS: dict[Pool, str] = {
    "target": "pilotfish.serve_app:build_target",
    "draft": "pilotfish.serve_app:build_draft",
    "orchestrator": "pilotfish.serve_app:build_orchestrator",
    "trainer": "pilotfish.serve_app:build_trainer",
}


def serve_file(config: Config) -> dict[str, Any]:
    """The file's content, which runs `config`.

    What Serve can change in place stands in `deployments`; a change of `args` restarts that application's replicas,
    so each has only the sections that it reads. The trainer is there if the drafter is to learn.
    """
    trainer: tuple[Pool, ...] = ("trainer",) if config.draft.learning.enabled else ()
    return {
        # The public address is the orchestrators' own.
        "proxy_location": "Disabled",
        "logging_config": {"enable_access_log": False},
        "applications": [
            {
                "name": APPLICATIONS[pool],
                "import_path": BUILDERS[pool],
                "route_prefix": None,
                "args": application_args(config, pool),
                "deployments": [scaling_options(config, pool)],
            }
            for pool in (*pools(config), *trainer)
        ],
    }


def application_args(config: Config, pool: Pool) -> dict[str, Any]:
    """The sections of the configuration that a pool reads."""
    args: dict[str, Any] = yaml.safe_load(config_to_yaml(config))
    if config.cache_dir == default_cache_dir():
        # Each machine of the cluster has its own default.
        del args["cache_dir"]
    deployment = args.pop("deployment")
    for each in ("target", "draft", "orchestrator"):
        del args[each]["num_replicas"]
    # An engine is its own pool's business.
    for each in {"target", "draft"} - {pool}:
        del args[each]["engine"]
    args["deployment"] = {"orchestrator": {"drain_s": deployment["orchestrator"]["drain_s"]}}
    if pool != "orchestrator":
        del args["orchestrator"], args["security"]["public"]
    return args
