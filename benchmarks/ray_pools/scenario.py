"""What befalls the pools while requests stream: load, a kill, a lost node, an update."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

from ray_pools.cluster import NODES, POOL_LABEL, LabelledCluster
from ray_pools.traffic import Traffic
from shared.report import Report

from pilotfish.config import (
    AutoscalingConfig,
    Config,
    DeploymentConfig,
    DraftConfig,
    EmulationConfig,
    OrchestratorConfig,
    OrchestratorPoolConfig,
    ScaledPoolConfig,
    SpeculationConfig,
    TargetConfig,
)
from pilotfish.pools.options import Pool

LOW, HIGH = 3, 12
"""Requests at once. TARGET_SEQUENCES a replica: they ask for one and for three replicas."""
TARGET_SEQUENCES = 4
MAX_SEQUENCES_PER_REPLICA = 6
"""Places of a replica: so few that requests wait in line until the target pool has grown."""
NUM_ORCHESTRATORS, QUICK_NUM_ORCHESTRATORS = 2, 1
TARGETS_PER_NODE = 2
"""Targets on one node, by its GPUs."""
SCALED: tuple[Pool, ...] = ("target", "draft")
MAX_REPLICAS, QUICK_MAX_REPLICAS = 3, 2
AFTERMATH_S = 1.0
"""Time of traffic after each event."""


def config(max_replicas: int = MAX_REPLICAS, num_orchestrators: int = NUM_ORCHESTRATORS) -> Config:
    """Emulated engines, three pools on nodes of their own, quick to scale."""
    scaling = AutoscalingConfig(
        max_replicas=max_replicas,
        target_sequences=TARGET_SEQUENCES,
        look_back_s=2.0,
        report_interval_s=0.5,
        upscale_delay_s=0.5,
        downscale_delay_s=1.0,
    )

    def scaled_pool(pool: Pool, num_gpus: float) -> ScaledPoolConfig:
        return ScaledPoolConfig(labels={POOL_LABEL: pool}, num_gpus=num_gpus, surge_percent=100, autoscaling=scaling)

    return Config(
        emulation=EmulationConfig(
            profile=str(Path(__file__).parent / "profile.yaml"), max_sequences=MAX_SEQUENCES_PER_REPLICA
        ),
        orchestrator=OrchestratorConfig(
            # Free ports, because all nodes are this machine.
            port=0,
            num_replicas=num_orchestrators,
            speculation=SpeculationConfig(mode="on"),
        ),
        deployment=DeploymentConfig(
            target=scaled_pool("target", 1),
            draft=scaled_pool("draft", 0.5),
            orchestrator=OrchestratorPoolConfig(
                labels={POOL_LABEL: "orchestrator"}, surge_percent=100, drain_s=10.0, max_replicas_per_node=4
            ),
        ),
    )


def updated(config: Config) -> Config:
    """Another version of each of the three applications."""
    changed: Config = dataclasses.replace(
        config,
        target=dataclasses.replace(config.target, metrics_port=0),
        draft=dataclasses.replace(config.draft, metrics_port=0),
        orchestrator=dataclasses.replace(config.orchestrator, stream_interval_tokens=2),
    )
    assert (changed.target, changed.draft) != (TargetConfig(), DraftConfig())
    return changed


class Scenario:
    """Runs on a cluster that is up and a stream of requests; rows and checks go into the report."""

    def __init__(self, cluster: LabelledCluster, traffic: Traffic, report: Report, max_replicas: int) -> None:
        self._max_replicas = max_replicas
        self._cluster = cluster
        self._traffic = traffic
        self._report = report

    def placement(self) -> None:
        """Each replica is on a node with its pool's label."""
        num_misplaced = 0
        for pool in ("target", "draft", "orchestrator"):
            where = [replica.node for replica in self._cluster.replicas(pool)]
            num_misplaced += sum(NODES[node][0] != pool for node in where)
            self._report.row(event=f"placement of the {pool} pool", seconds="", replicas=" ".join(sorted(where)))
        self._report.check("misplaced replicas", num_misplaced, 0, "", "equal to")

    def scale_out(self) -> None:
        self._traffic.concurrency = HIGH
        with self._event(f"scale-out 1 to {self._max_replicas}, both pools"):
            self._wait_for_replicas(self._max_replicas)

    def kill(self) -> None:
        """SIGKILL a replica of each pool."""
        with self._event("a replica of each pool killed"):
            victims = [self._cluster.replicas(pool)[0] for pool in SCALED]
            for victim in victims:
                self._cluster.kill(victim)
            self._cluster.wait(
                "the killed replicas gone",
                lambda: not any(each in victims for pool in SCALED for each in self._cluster.replicas(pool)),
            )
            self._wait_for_replicas(self._max_replicas)

    def lose_node(self) -> None:
        """The target node with most replicas goes, with all that runs there; the other one takes what fits."""
        hosts = [replica.node for replica in self._cluster.replicas("target")]
        victim = max(sorted(set(hosts)), key=hosts.count)

        def is_full_elsewhere() -> bool:
            now = [replica.node for replica in self._cluster.replicas("target")]
            # Fewer sequences speculate meanwhile, so that the draft pool may have shrunk.
            num_drafters = len(self._cluster.replicas("draft"))
            return victim not in now and len(now) == TARGETS_PER_NODE and num_drafters == self._max_replicas

        with self._event(f"target node lost, with {hosts.count(victim)} of {len(hosts)} replicas"):
            self._cluster.lose_node(victim)
            self._cluster.wait(f"replicas elsewhere than on {victim}", is_full_elsewhere)

    def scale_in(self) -> None:
        self._traffic.concurrency = LOW
        with self._event(f"scale-in {self._max_replicas} to 1, both pools"):
            self._wait_for_replicas(1)

    def update(self, version: Config) -> None:
        """Every replica of every pool is replaced."""
        pools: tuple[Pool, ...] = ("target", "draft", "orchestrator")
        old = {replica.replica_id for pool in pools for replica in self._cluster.replicas(pool)}

        def is_done() -> bool:
            now = [{replica.replica_id for replica in self._cluster.replicas(pool)} for pool in pools]
            return all(now) and not old & set().union(*now) and len(now[2]) == version.orchestrator.num_replicas

        with self._event(f"rolling update of all pools, {len(old)} replicas"):
            self._cluster.deploy(version)
            self._cluster.wait("update", is_done)

    def finish(self, start_s: float) -> None:
        """The whole run's checks."""
        answers = self._traffic.since(start_s)
        problems = [answer.problem for answer in answers if answer.problem]
        for problem in problems:
            self._report.row(event=f"problem: {problem}")
        self._report.check("failed requests", len(problems), 0, f"of {len(answers)}", "equal to")

    def _wait_for_replicas(self, count: int) -> None:
        def are_there() -> bool:
            return all(len(self._cluster.replicas(pool)) == count for pool in SCALED)

        self._cluster.wait(f"{count} replicas in each pool", are_there)

    @contextlib.contextmanager
    def _event(self, name: str) -> Iterator[None]:
        start_s = time.monotonic()
        yield
        seconds = time.monotonic() - start_s
        time.sleep(AFTERMATH_S)
        answers = self._traffic.since(start_s)
        num_failed = sum(bool(answer.problem) for answer in answers)
        self._report.row(
            event=name,
            seconds=round(seconds, 1),
            replicas=" ".join(f"{len(self._cluster.replicas(pool))} {pool}" for pool in SCALED),
            requests=len(answers),
            failed=num_failed,
            retried=sum(answer.num_retries > 0 for answer in answers),
            longest_pause_s=round(max((answer.longest_pause_s for answer in answers), default=0.0), 2),
        )
        print(
            f"{time.strftime('%H:%M:%S')} {name}: {seconds:.1f} s, {len(answers)} requests, {num_failed} failed",
            flush=True,
        )
        self._report.check(f"{name}: failed requests", num_failed, 0, f"of {len(answers)}", "equal to")
