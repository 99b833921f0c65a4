"""Three deployments: as one Serve application, or as one each, with the trainer as one more.

Serve restarts every replica of an application whose arguments or image change. As three applications, a change of
the orchestrator's settings leaves the models where they are; that is what `pilotfish config --serve` writes.
"""

from __future__ import annotations

from typing import Any

from ray import serve

from draft_service.deployment import DraftReplica
from orchestrator.deployment import orchestrator_application, router_config
from orchestrator.replicas.directory import PoolName
from pilotfish.config import Config, config_from_dict
from pilotfish.pools.options import APPLICATIONS, fixed_options, on_reserved_gpus, scaling_options
from pilotfish.training.online.deployment import TrainerReplica
from target_service.deployment import TargetReplica

SOURCE = "the application's args"


def build_target(args: dict[str, Any]) -> serve.Application:
    """The target pool alone. `args` is the configuration."""
    return _pool(config_from_dict(args, source=SOURCE), "target")


def build_draft(args: dict[str, Any]) -> serve.Application:
    """The draft pool alone. `args` is the configuration."""
    return _pool(config_from_dict(args, source=SOURCE), "draft")


def build_orchestrator(args: dict[str, Any]) -> serve.Application:
    """The orchestrators alone, which find the pools by the names of their applications, now or later."""
    config = config_from_dict(args, source=SOURCE)
    return orchestrator_application(config, {"target": APPLICATIONS["target"], "draft": APPLICATIONS["draft"]})


def build_trainer(args: dict[str, Any]) -> serve.Application:
    """The trainer alone. `args` is the configuration."""
    config = config_from_dict(args, source=SOURCE)
    return serve.deployment(TrainerReplica, **scaling_options(config, "trainer"), **fixed_options(config)).bind(
        on_reserved_gpus(config)
    )


def compose(config: Config) -> serve.Application:
    """The orchestrator's deployment, bound to those of the pools that the configuration asks for."""
    pools: dict[PoolName, serve.Application | str] = {"target": _pool(config, "target")}
    if config.draft.num_replicas > 0:
        pools["draft"] = _pool(config, "draft")
    return orchestrator_application(config, pools)


def _pool(config: Config, pool: PoolName) -> serve.Application:
    """The deployment of a pool of replicas, bound to a configuration."""
    return serve.deployment(
        TargetReplica if pool == "target" else DraftReplica,
        **scaling_options(config, pool),
        **fixed_options(config),
        request_router_config=router_config(pool),
    ).bind(on_reserved_gpus(config))
