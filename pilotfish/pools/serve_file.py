"""The declarative file for `serve deploy`: one application per pool."""

from __future__ import annotations

from typing import Any

import yaml

from pilotfish.config import Config, config_to_yaml, default_cache_dir
from pilotfish.pools.options import Pool, pools, scaling_options

APPLICATIONS: dict[Pool, str] = {
    "target": "pilotfish-target",
    "draft": "pilotfish-draft",
    "orchestrator": "pilotfish",
}
BUILDERS: dict[Pool, str] = {
    "target": "pilotfish.serve_app:build_target",
    "draft": "pilotfish.serve_app:build_draft",
    "orchestrator": "pilotfish.serve_app:build_orchestrator",
}


def serve_file(config: Config) -> dict[str, Any]:
    """The file's content, which runs `config`.

    What Serve can change in place stands in `deployments`; a change of `args` restarts that application's replicas,
    so each has only the sections that it reads.
    """
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
            for pool in pools(config)
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
    if pool == "orchestrator":
        args["deployment"] = {"orchestrator": {"drain_s": deployment["orchestrator"]["drain_s"]}}
    else:
        del args["orchestrator"], args["security"]["public"]
    return args
