"""Emulated services, and what they take of the processors."""

from __future__ import annotations

import dataclasses
from typing import Literal

import psutil

from pilotfish.config import Config, EmulationConfig
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
