"""The Ray Serve application: three deployments, composed.

`build` is what `serve deploy` imports. `python -m pilotfish.serve_app --config FILE` runs the
application on a private Ray of this machine until SIGINT or SIGTERM; `pilotfish up` starts it so.
It prints one line per service as it becomes ready, as the services themselves do.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import ray
from ray import serve
from ray.serve.config import ProxyLocation
from ray.serve.schema import ApplicationStatus, DeploymentStatus, LoggingConfig

from draft_service.deployment import draft_application
from orchestrator.deployment import orchestrator_application, router_config
from orchestrator.replicas.directory import PoolName
from pilotfish.config import Config, config_from_dict, load_config
from pilotfish.errors import ConfigError, PilotfishError, UnavailableError
from target_service.deployment import target_application

APPLICATION = "pilotfish"
SERVICES = {"target": "target_service", "draft": "draft_service", "orchestrator": "orchestrator"}
"""Deployment name to service name."""

_EXCEPTION_NAME = re.compile(r"^(\w+\.)+\w+: ")

START_INTERVAL_S = 0.2
WATCH_INTERVAL_S = 1.0
"""Between looks at Serve's status, while starting and after."""
DESCRIBE_TIMEOUT_S = 10.0
OBJECT_STORE_BYTES = 80 * 1024 * 1024
"""The smallest that Ray accepts is 75 MiB; nothing of ours goes through it."""


def build(args: dict[str, Any]) -> serve.Application:
    """Compose the application. `args` is the configuration: `pilotfish config --serve` writes it."""
    return compose(config_from_dict(args, source="the application's args"))


def compose(config: Config, *, gpu_share: float = 1.0) -> serve.Application:
    """The orchestrator's deployment, bound to those of the pools that the configuration asks for.

    gpu_share: GPUs that each replica which computes on one reserves.
    """
    on_gpu = replicas_on_gpu(config)
    pools: dict[PoolName, serve.Application] = {
        "target": target_application(
            config, router_config=router_config("target"), num_gpus=gpu_share if on_gpu["target"] else 0
        )
    }
    if config.draft.num_replicas > 0:
        pools["draft"] = draft_application(
            config, router_config=router_config("draft"), num_gpus=gpu_share if on_gpu["draft"] else 0
        )
    return orchestrator_application(config, pools)


def replicas_on_gpu(config: Config) -> dict[PoolName, int]:
    """How many replicas of each pool compute on a GPU."""
    target_on_gpu = config.target.engine.device.startswith("cuda")
    draft_on_gpu = config.draft.engine.device.startswith("cuda") and config.draft.proposer == "model"
    return {
        "target": config.target.num_replicas if target_on_gpu else 0,
        "draft": config.draft.num_replicas if draft_on_gpu else 0,
    }


def share_gpus(config: Config, num_gpus: float) -> float:
    """The share of a GPU that each replica gets on a machine with num_gpus of them.

    Raises ConfigError when replicas need one and there is none: Ray would wait for it forever.
    """
    num_replicas = sum(replicas_on_gpu(config).values())
    if num_replicas and num_gpus < 1:
        raise ConfigError("a device is set to cuda, but Ray finds no GPU on this machine: set engine.device to cpu")
    # Rounded down, so that the shares of one GPU do not add up to more than it.
    return min(1.0, int(num_gpus / num_replicas * 100) / 100) if num_replicas else 1.0


@contextlib.contextmanager
def private_ray(temp_dir: Path) -> Iterator[None]:
    """A Ray of our own on the loopback interface, whatever other Ray runs; ends with the block.

    temp_dir: absolute and short (Ray puts Unix sockets there, whose paths hold 107 bytes).
    """
    ray.init(
        address="local",
        # Three deployments of a tenth of a CPU each, with room for their replicas.
        num_cpus=max(4, os.cpu_count() or 1),
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=OBJECT_STORE_BYTES,
        _node_ip_address="127.0.0.1",
        _temp_dir=str(temp_dir),
    )
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def running(config: Config) -> Iterator[None]:
    """The application on the current Ray, deployed but not yet ready; deleted with the block."""
    quiet = LoggingConfig(enable_access_log=False, log_level="WARNING")
    gpu_share = share_gpus(config, ray.cluster_resources().get("GPU", 0))
    # No proxy: the public address is the orchestrator's own, and port 8000 stays free.
    serve.start(proxy_location=ProxyLocation.Disabled, logging_config=quiet)
    try:
        application = compose(config, gpu_share=gpu_share)
        target = serve.RunTarget(target=application, name=APPLICATION, route_prefix=None, logging_config=quiet)
        serve.run_many([target], wait_for_applications_running=False)
        yield
    finally:
        serve.shutdown()


class Reporter:
    """Prints what changes in the state of the deployments."""

    def __init__(self) -> None:
        self._states: dict[str, DeploymentStatus] = {}
        self._problems: dict[str, str] = {}
        self._ready: set[str] = set()

    @property
    def is_starting(self) -> bool:
        """Whether the orchestrator, the last of those that are needed, has yet to become ready."""
        return "orchestrator" not in self._ready

    def poll(self) -> None:
        """Compare with Serve's status once. Raises UnavailableError when a needed service cannot start."""
        application = serve.status().applications.get(APPLICATION)
        if application is None:
            return
        for name, deployment in application.deployments.items():
            is_healthy = deployment.status is DeploymentStatus.HEALTHY
            if name == "orchestrator" and is_healthy and "target" not in self._ready:
                continue  # it listens already, but cannot answer
            became_healthy = is_healthy and self._states.get(name) is not DeploymentStatus.HEALTHY
            self._states[name] = deployment.status
            if became_healthy:
                self._ready.add(name)
                self._print_ready(name)
            elif deployment.status is DeploymentStatus.DEPLOY_FAILED and name != "draft":
                raise UnavailableError(f"{SERVICES[name]} cannot start: {reason(deployment.message)}")
            elif not is_healthy and deployment.message:
                self._print_problem(name, reason(deployment.message))
        if application.status is ApplicationStatus.DEPLOY_FAILED and not application.deployments:
            raise UnavailableError(f"the application cannot start: {reason(application.message)}")

    def _print_ready(self, name: str) -> None:
        handle = serve.get_deployment_handle(name, APPLICATION)
        description = handle.describe.remote().result(timeout_s=DESCRIBE_TIMEOUT_S)
        detail = f" ({description['detail']})" if description["detail"] else ""
        print(f"{SERVICES[name]} ready on {description['address']}{detail}", flush=True)

    def _print_problem(self, name: str, problem: str) -> None:
        if self._problems.get(name) != problem:
            self._problems[name] = problem
            print(f"{SERVICES[name]}: {problem}", file=sys.stderr, flush=True)


def reason(message: str) -> str:
    """The last line of one of Serve's messages: of a traceback, the exception's own message."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return _EXCEPTION_NAME.sub("", lines[-1]) if lines else "no reason given"


class Stop(BaseException):
    """SIGINT or SIGTERM came."""


def _raise_stop(*_: object) -> NoReturn:
    raise Stop


def _handle_signals(handler: Any) -> None:
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, handler)


def run(config: Config, temp_dir: Path) -> None:
    """Run until a signal comes. Raises UnavailableError when a needed service cannot start."""
    _handle_signals(_raise_stop)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(private_ray(temp_dir))
            _handle_signals(_raise_stop)  # ray.init installs its own
            stack.enter_context(running(config))
            reporter = Reporter()
            while True:
                reporter.poll()
                time.sleep(START_INTERVAL_S if reporter.is_starting else WATCH_INTERVAL_S)
        except (Stop, SystemExit):
            pass
        finally:
            # A second signal must not interrupt the clean-up; who waits for us sends SIGKILL.
            _handle_signals(signal.SIG_IGN)
            # Ray prints there that the actors it is stopping have died.
            with contextlib.redirect_stdout(io.StringIO()):
                stack.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pilotfish.serve_app", description=__doc__)
    parser.add_argument("--config", type=Path, help="YAML file")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value")
    parser.add_argument("--temp-dir", type=Path, required=True, help="for Ray's sockets and logs; short and absolute")
    arguments = parser.parse_args()
    logging.disable(logging.INFO)  # Serve tells of its every step
    try:
        run(load_config(arguments.config, arguments.set), arguments.temp_dir)
    except PilotfishError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
