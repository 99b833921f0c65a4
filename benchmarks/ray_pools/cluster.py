"""A Ray cluster of labelled nodes on this machine, and what Serve runs on it."""

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import ray
import yaml
from ray import serve
from ray.cluster_utils import Cluster
from ray.dashboard.modules.serve.sdk import ServeSubmissionClient

from pilotfish.config import Config
from pilotfish.launch.specs import free_ports
from pilotfish.pools.options import APPLICATIONS, Pool, serve_file

POOL_LABEL = "pilotfish.io/pool"
NODES: Mapping[str, tuple[Pool, int]] = {
    "head": ("orchestrator", 0),
    "target-a": ("target", 2),
    "target-b": ("target", 2),
    "draft-a": ("draft", 2),
}
"""Name to pool and GPUs, which are numbers only: emulated engines compute on none."""
NODE_LABEL = "pilotfish.io/node"
NODE_IP = "127.0.0.2"
"""The loopback interface, under a name that Ray does not take for one: of 127.0.0.1 it makes the machine's address."""
OBJECT_STORE_BYTES = 80 * 1024 * 1024
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Replica:
    """One that runs."""

    replica_id: str
    pid: int
    node: str
    """Its name in NODES."""


class LabelledCluster:
    """`with LabelledCluster(folder) as cluster`: its nodes run inside the block, nothing is left after it."""

    def __init__(self, folder: Path) -> None:
        """folder: for files; RAY_TMPDIR names it as well, so that this Ray touches no other Ray's files."""
        self._folder = folder

    def __enter__(self) -> Self:
        (port,) = free_ports(1)
        self._cluster = Cluster()
        self._nodes: dict[str, Any] = {}
        try:
            for name in NODES:
                head = {"include_dashboard": True, "dashboard_port": port} if name == "head" else {}
                self._add_node(name, wait=name == "head", **head)
            self._cluster.wait_for_nodes()
            ray.init(
                address=self._cluster.address, _node_ip_address=NODE_IP, log_to_driver=False, logging_level="ERROR"
            )
        except BaseException:
            self._stop()
            raise
        self._dashboard = f"http://127.0.0.1:{port}"
        self._client = ServeSubmissionClient(self._dashboard)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def deploy(self, config: Config) -> None:
        """`serve deploy` of what `pilotfish config --serve` prints; does not wait."""
        path = self._folder / "serve.yaml"
        path.write_text(yaml.safe_dump(serve_file(config), sort_keys=False), encoding="utf-8")
        command = [str(Path(sys.executable).parent / "serve"), "deploy", str(path), "-a", self._dashboard]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"serve deploy failed: {done.stdout}{done.stderr}")

    def replicas(self, pool: Pool) -> list[Replica]:
        """The pool's replicas that run."""
        names = {node["NodeID"]: node["Labels"][NODE_LABEL] for node in ray.nodes()}
        application = self._client.get_serve_details()["applications"].get(APPLICATIONS[pool], {})
        deployment = application.get("deployments", {}).get(pool, {})
        return [
            Replica(each["replica_id"], each["pid"], names[each["node_id"]])
            for each in deployment.get("replicas", [])
            if each["state"] == "RUNNING"
        ]

    def wait(self, what: str, holds: Callable[[], bool], timeout_s: float = 180.0) -> float:
        """Seconds until it holds. Raises TimeoutError with what Serve says."""
        start_s = time.monotonic()
        while not holds():
            if time.monotonic() - start_s > timeout_s:
                raise TimeoutError(f"{what}: not within {timeout_s:g} s; {self._messages()}")
            time.sleep(POLL_S)
        return time.monotonic() - start_s

    def kill(self, replica: Replica) -> None:
        os.kill(replica.pid, signal.SIGKILL)

    def lose_node(self, name: str) -> None:
        """End everything that runs there, without a word."""
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def replace_lost_nodes(self) -> None:
        """Others come, with the same labels."""
        for name in NODES.keys() - self._nodes.keys():
            self._add_node(name, wait=True)

    def addresses(self) -> list[str]:
        """Addresses of the orchestrators' public API: what an endpoint controller gives to a load balancer."""
        described = self._orchestrators.broadcast("describe").results(timeout_s=5.0, return_exceptions=True)
        return [each["address"] for each in described if isinstance(each, dict)]

    def _add_node(self, name: str, **options: Any) -> None:
        pool, num_gpus = NODES[name]
        self._nodes[name] = self._cluster.add_node(
            node_ip_address=NODE_IP,
            num_cpus=1,
            num_gpus=num_gpus,
            labels={POOL_LABEL: pool, NODE_LABEL: name},
            object_store_memory=OBJECT_STORE_BYTES,
            **options,
        )

    @functools.cached_property
    def _orchestrators(self) -> Any:
        return serve.get_deployment_handle("orchestrator", APPLICATIONS["orchestrator"])

    def _messages(self) -> str:
        said = []
        for name, application in self._client.get_serve_details()["applications"].items():
            said.append(f"{name} {application['status']} {application['message']}")
            for deployment in application["deployments"].values():
                said.append(f"{deployment['name']} {deployment['status']} {deployment['message']}")
        return "; ".join(said)

    def _stop(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()
