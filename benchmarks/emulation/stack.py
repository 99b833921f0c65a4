"""Emulated services, and further orchestrators over the same replicas: arms that differ in one setting only."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Literal

import psutil
from shared.services import orchestrator

from pilotfish.config import Config, EmulationConfig, SpeculationConfig
from pilotfish.launch.local_stack import LocalStack

PROFILE = "a100-70b"
MAX_DRAFT_TOKENS = 8
SERVICES = ("orchestrator", "target_service", "draft_service")


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
    section = stack.config.orchestrator
    if draft_addresses is not None:
        section = dataclasses.replace(section, draft_addresses=draft_addresses)
    if speculation is not None:
        section = dataclasses.replace(section, speculation=speculation)
    with orchestrator(dataclasses.replace(stack.config, orchestrator=section)) as started:
        yield started.address
