"""Does anything that happens to the pools of a Ray cluster fail a request?

A cluster of labelled nodes on this machine, `serve deploy` of what `pilotfish config --serve` writes, emulated engines,
and a steady stream of requests, each held against what an undisturbed run says. Meanwhile the pools scale from one
replica to three and back, replicas are killed, a node is lost, and every replica is replaced by a rolling update.
"""

import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from chaos.truth import EmulatedTruth
from ray_pools.cluster import NODES, LabelledCluster
from ray_pools.scenario import (
    HIGH,
    LOW,
    QUICK_MAX_REPLICAS,
    QUICK_NUM_ORCHESTRATORS,
    TARGET_SEQUENCES,
    Scenario,
    config,
    updated,
)
from ray_pools.traffic import MAX_TOKENS, Traffic
from shared.report import Report, parser

from pilotfish.config import Config, environment
from pilotfish.launch.specs import FOREIGN_RAY_VARIABLES, ray_environment

QUICK_START = {"RAY_prestart_worker_first_driver": "0"}
"""Otherwise each node starts a worker per CPU that nobody needs."""


def run_in_child(arguments: Sequence[str]) -> int:
    """Its exit status. Ray reads its environment as soon as it is imported."""
    # Short, because Ray puts Unix sockets there.
    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        variables = environment(
            {**ray_environment(), **QUICK_START, "RAY_TMPDIR": folder}, without=FOREIGN_RAY_VARIABLES
        )
        command = [sys.executable, __file__, *arguments, "--folder", folder]
        return subprocess.run(command, env=variables, check=False).returncode


def max_replicas(of: Config) -> int:
    """A pool's."""
    return of.deployment.target.autoscaling.max_replicas


def run(report: Report, folder: Path, first: Config, *, rounds: int, quick: bool) -> None:
    """Everything once per round, on one cluster. quick: no replica is killed by itself."""
    num_orchestrators = first.orchestrator.num_replicas
    versions = itertools.cycle([first, updated(first)])
    start_s = time.monotonic()
    with LabelledCluster(folder) as cluster:
        print(f"cluster: {time.monotonic() - start_s:.1f} s", flush=True)
        cluster.deploy(next(versions))
        cluster.wait("orchestrators", lambda: len(cluster.replicas("orchestrator")) == num_orchestrators)
        cluster.wait("pools", lambda: bool(cluster.replicas("target") and cluster.replicas("draft")))
        report.row(event="cluster and applications started", seconds=round(time.monotonic() - start_s, 1))
        with Traffic(EmulatedTruth(first), cluster.addresses, LOW) as traffic:
            scenario = Scenario(cluster, traffic, report, max_replicas(first))
            start_s = time.monotonic()
            scenario.placement()
            for _ in range(rounds):
                cluster.replace_lost_nodes()
                scenario.scale_out()
                if not quick:
                    scenario.kill()
                scenario.lose_node()
                scenario.scale_in()
                scenario.update(next(versions))
            scenario.finish(start_s)


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument("--rounds", type=int, help="default 3, with --quick 1")
    options_parser.add_argument("--folder", type=Path, help="Ray's, with its environment already set (internal)")
    options = options_parser.parse_args(arguments)
    if options.folder is None:
        return run_in_child(sys.argv[1:] if arguments is None else arguments)
    rounds = options.rounds or (1 if options.quick else 3)
    first = config(QUICK_MAX_REPLICAS, QUICK_NUM_ORCHESTRATORS) if options.quick else config()
    report = Report(
        "Does anything that happens to the pools of a Ray cluster fail a request?",
        {
            "engines": "EMULATED, steps of 60 ms",
            "nodes": " ".join(f"{name} ({pool})" for name, (pool, _) in NODES.items()),
            "requests at once": f"{LOW} and {HIGH}, of {MAX_TOKENS} tokens",
            "replicas": f"1 to {max_replicas(first)} a pool, for {TARGET_SEQUENCES} sequences each",
            "orchestrators": first.orchestrator.num_replicas,
            "rounds": rounds,
            "cores shared by all": len(os.sched_getaffinity(0)),
        },
    )
    run(report, options.folder, first, rounds=rounds, quick=options.quick)
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
