"""Emulated services, and further orchestrators over the same replicas: arms that differ in one setting only."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import psutil

from pilotfish.config import Config, EmulationConfig, SpeculationConfig, config_to_yaml
from pilotfish.errors import UnavailableError
from pilotfish.launch.local_stack import LocalStack
from pilotfish.launch.tether import tethered

PROFILE = "a100-70b"
MAX_DRAFT_TOKENS = 8
SERVICES = ("orchestrator", "target_service", "draft_service")
_STOP_TIMEOUT_S = 20.0


def emulated_config(
    acceptance: float, *, draft_ahead: Literal["auto", "off", "on"] = "auto", time_scale: float = 1.0
) -> Config:
    """One target and one draft replica of a profile; requests say themselves how they speculate."""
    config = Config(emulation=EmulationConfig(profile=PROFILE, acceptance=acceptance, time_scale=time_scale))
    speculation = dataclasses.replace(
        config.orchestrator.speculation, num_speculative_tokens=MAX_DRAFT_TOKENS, draft_ahead=draft_ahead
    )
    orchestrator = dataclasses.replace(config.orchestrator, speculation=speculation, max_concurrent_requests=512)
    return dataclasses.replace(config, orchestrator=orchestrator)


def cpu_times_s(stack: LocalStack) -> dict[str, float]:
    """Processor time that each service, and this client, has taken so far."""
    processes = {"client": psutil.Process()}
    processes |= {name: psutil.Process(stack.pid(name)) for name in SERVICES}
    return {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}


@contextlib.contextmanager
def another_orchestrator(
    stack: LocalStack, *, draft_addresses: tuple[str, ...] | None = None, speculation: SpeculationConfig | None = None
) -> Iterator[str]:
    """The public address of one more orchestrator over the stack's replicas.

    draft_addresses: instead of the stack's own; () for a deployment without a draft pool. Raises UnavailableError
    when it does not start.
    """
    orchestrator = dataclasses.replace(stack.config.orchestrator, port=0)
    if draft_addresses is not None:
        orchestrator = dataclasses.replace(orchestrator, draft_addresses=draft_addresses)
    if speculation is not None:
        orchestrator = dataclasses.replace(orchestrator, speculation=speculation)
    with tempfile.TemporaryDirectory(prefix="pilotfish-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(config_to_yaml(dataclasses.replace(stack.config, orchestrator=orchestrator)), encoding="utf-8")
        command = tethered("orchestrator", "--config", str(path))
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            try:
                words = process.stdout.readline().split()
                if words[1:3] != ["ready", "on"]:
                    raise UnavailableError("a second orchestrator did not start")
                yield words[3]
            finally:
                process.terminate()
                process.wait(_STOP_TIMEOUT_S)
