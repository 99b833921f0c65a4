"""The engine's own process: `python -m pilotfish.engine.process.worker --socket DESCRIPTOR --role ROLE`.

Started by `pilotfish.engine.process.process_engine`; see `wire.py` for what is said over the socket. As a
pilotfish.child it cannot outlive its front.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pilotfish.config import Config, config_from_yaml
from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.engine.core.engine import WAITING_POLL_S, Engine
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.process.factory import build_engine
from pilotfish.engine.process.wire import (
    EngineInput,
    EngineOutput,
    Failed,
    Ready,
    Role,
    WorkerSocket,
    encoder,
    input_decoder,
    setup_decoder,
)
from pilotfish.errors import PilotfishError
from pilotfish.messages import Event
from pilotfish.models.device import resolve_device
from pilotfish.models.native.amx import request_tiles
from pilotfish.telemetry.logs import configure_logging

logger = logging.getLogger(__name__)

LOAD_INTERVAL_S = 0.5
"""The load is reported this often, changed or not: a sign of life."""
STEP_TIMEOUT_S = 60.0
"""A step's, where it waits for ranks or a GPU, either of which can hang."""


def run(core: Engine, front: WorkerSocket, delay: BatchingDelay | None = None) -> None:
    """Serve commands for ever: take what came, step while there is work, wait otherwise.

    delay: a target's, which waits a moment for sequences that come back soon.
    """
    sent: list[Event] = []
    """Events of the step under way that have left."""

    def send_first(events: list[Event]) -> None:
        sent.extend(events)
        front.send(encoder.encode(EngineOutput(events, core.load())))

    core.send_first = send_first
    last_report_s = 0.0
    wait_s = 0.0  # the front sends its first peers the load
    while True:
        _feed(delay, _submit(core, front, wait_s))
        if delay is not None and core.has_work and (wait_ns := delay.wait_ns(time.monotonic_ns())) > 0:
            wait_s = wait_ns / 1e9
            continue
        events: Sequence[Event] = []
        if core.has_work:
            events = core.step(None if delay is None else delay.max_rows(time.monotonic_ns()))
            if delay is not None:
                late = _submit(core, front, 0.0)
                events = core.go_on(events)
                delay.gave([*sent, *events], time.monotonic_ns())
                _feed(delay, late)
            sent.clear()
        now_s = time.monotonic()
        if events or now_s - last_report_s >= LOAD_INTERVAL_S:
            front.send(encoder.encode(EngineOutput(list(events), core.load())))
            last_report_s = now_s
        wait_s = 0.0 if core.has_work else WAITING_POLL_S if core.is_waiting else LOAD_INTERVAL_S


def _submit(core: Engine, front: WorkerSocket, wait_s: float) -> list[EngineInput]:
    """Hand over what has arrived, after waiting wait_s for a first message."""
    arrived = list(map(input_decoder.decode, front.receive(wait_s)))
    for message in arrived:
        for command in message.commands:
            core.submit(command)
    return arrived


def _feed(delay: BatchingDelay | None, arrived: list[EngineInput]) -> None:
    if delay is not None:
        for message in arrived:
            delay.took(message.commands, message.arrived_ns)


def silence_timeout_s(config: Config, role: Role) -> float:
    """See wire.Ready, of an engine that has been built with this configuration."""
    engine = config.target.engine if role == "target" else config.draft.engine
    num_ranks = config.target.tensor_parallel_size if role == "target" else 1
    can_hang = num_ranks > 1 or resolve_device(engine.device).type == "cuda"
    return engine.step_timeout_s or (STEP_TIMEOUT_S if can_hang else 0.0)


def main() -> None:
    """Parse the arguments, load the model, serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", type=int, required=True, help="inherited descriptor")
    parser.add_argument("--role", required=True, choices=("target", "draft"))
    arguments = parser.parse_args()
    request_tiles()  # before there are threads, one of which may have too small a signal stack
    front = WorkerSocket(arguments.socket)
    setup = setup_decoder.decode(front.receive()[0])
    config = config_from_yaml(setup.config)
    configure_logging(config.log_level, config.telemetry.log_format, f"{arguments.role}_engine")
    try:
        rank_folder = Path(setup.rank_folder) if setup.rank_folder else None
        core = build_engine(config, arguments.role, rank_folder=rank_folder)
    except PilotfishError as error:
        front.send(encoder.encode(Failed(type(error).__name__, str(error))))
        sys.exit(1)
    front.send(encoder.encode(Ready(core.model, core.limits, silence_timeout_s(config, arguments.role))))
    delay = None
    if arguments.role == "target" and isinstance(core, EngineCore):
        delay = BatchingDelay(core.step_costs, config.target.engine.max_batch_tokens)
    run(core, front, delay)


if __name__ == "__main__":
    main()
