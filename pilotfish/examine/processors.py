"""Whether a draft service computes on its target's processors."""

from __future__ import annotations

from pilotfish.config import Config
from pilotfish.config.engine import EngineConfig
from pilotfish.engine.process.cores import usable_cores
from pilotfish.models.device import resolve_device


def shares_processors(config: Config, num_cores: int | None = None) -> bool:
    """Whether drafter and target take cores from each other: both compute on the CPU of one machine, with more threads
    together than it has cores. A draft service of another address (orchestrator.draft_addresses) has processors of its
    own.

    num_cores: that the services may use; None: as many as this process.

    Raises ConfigError for a device that this machine lacks.
    """
    if config.orchestrator.draft_addresses:
        return False
    cores = usable_cores() if num_cores is None else num_cores
    engines = config.target.engine, config.draft.engine
    return all(map(_is_on_cpu, engines)) and sum(engine.num_threads or cores for engine in engines) > cores


def _is_on_cpu(engine: EngineConfig) -> bool:
    return resolve_device(engine.device).type == "cpu"
