"""The application on a private Ray of this machine, as `pilotfish up` starts it."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.schema import LoggingConfig

from pilotfish.config import Config
from pilotfish.errors import ConfigError
from pilotfish.pools.capacity import check_room, demand
from pilotfish.pools.options import (
    Pool,
    computes_on_gpu,
    fixed_options,
    num_ranks,
    num_replicas,
    pools,
    scaling_options,
    with_gpus_per_replica,
)
from pilotfish.serve_app.compose import compose
from pilotfish.serve_app.ray_errors import told_as_unavailable
from pilotfish.serve_app.reporter import APPLICATION, Reporter

logger = logging.getLogger(__name__)

START_INTERVAL_S = 0.2
WATCH_INTERVAL_S = 1.0
"""Time between looks at Serve's status, while starting and after."""
SERVE_MARGIN_S = 5.0
"""Time between Serve's kill of a replica and its noticing that."""
OBJECT_STORE_BYTES = 80 * 1024 * 1024
"""The smallest that Ray accepts is 75 MiB; nothing of ours goes through it."""
GPU_POOLS: tuple[Pool, ...] = ("target", "draft")


def for_this_machine(config: Config, num_gpus: float) -> Config:
    """The configuration of a cluster, fitted to one machine: it is every pool's node, the replicas share its GPUs,
    and one orchestrator has the public port.

    Raises ConfigError when replicas need a GPU and there is none: Ray would wait for it forever.
    """
    num_sharing = sum(
        num_replicas(config, pool) * num_ranks(config, pool) for pool in GPU_POOLS if computes_on_gpu(config, pool)
    )
    if num_sharing and num_gpus < 1:
        raise ConfigError("a device is set to cuda, but Ray finds no GPU on this machine: set engine.device to cpu")
    if num_sharing:
        # Rounded down, so that the shares of one GPU do not add up to more than it.
        config = with_gpus_per_replica(config, min(1.0, int(num_gpus / num_sharing * 100) / 100))
    here: dict[str, Any] = {"labels": {}, "resources": {}, "max_replicas_per_node": 0}
    section = config.deployment
    deployment = dataclasses.replace(
        section,
        target=dataclasses.replace(section.target, **here),
        draft=dataclasses.replace(section.draft, **here),
        orchestrator=dataclasses.replace(section.orchestrator, **here),
    )
    orchestrator = dataclasses.replace(config.orchestrator, num_replicas=1)
    return dataclasses.replace(config, deployment=deployment, orchestrator=orchestrator)


@contextlib.contextmanager
def private_ray(temp_dir: Path) -> Iterator[None]:
    """A Ray of our own on the loopback interface, whatever other Ray runs; ends with the block.

    temp_dir: absolute and short (Ray puts Unix sockets there, whose paths hold 107 bytes).
    """
    with told_as_unavailable("start on this machine"):
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
    resources = ray.cluster_resources()
    num_gpus = resources.get("GPU", 0.0)
    config = for_this_machine(config, num_gpus)
    check_room([demand(scaling_options(config, pool)) for pool in pools(config)], resources["CPU"], num_gpus)
    with told_as_unavailable("start Serve"):
        # No proxy: the public address is the orchestrator's own, and port 8000 stays free.
        serve.start(proxy_location="Disabled", logging_config=quiet)
    try:
        application = compose(config)
        target = serve.RunTarget(target=application, name=APPLICATION, route_prefix=None, logging_config=quiet)
        with told_as_unavailable("deploy the services"):
            serve.run_many([target], wait_for_applications_running=False)
        yield
    finally:
        _shut_down_serve(fixed_options(config)["graceful_shutdown_timeout_s"] + SERVE_MARGIN_S)


def _shut_down_serve(timeout_s: float) -> None:
    """Serve's own shutdown gives replicas half a minute, whatever they are to have: so they are ended first."""
    try:
        serve.delete(APPLICATION, _blocking=False)
        end_s = time.monotonic() + timeout_s
        while APPLICATION in serve.status().applications and time.monotonic() < end_s:
            time.sleep(START_INTERVAL_S)
        serve.shutdown()
    except (RayError, RayServeException, RuntimeError, TimeoutError) as error:
        # Ray itself ends next, and with it all that runs on it: whatever came before is what people should read.
        logger.debug("Serve did not shut down: %s", error)


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
