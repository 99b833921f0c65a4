"""The engine's own process: `python -m pilotfish.engine.worker --socket DESCRIPTOR --role ROLE`.

Started by `pilotfish.engine.process`; see `wire.py` for what is said over the socket. It ends when its
standard input does, so it cannot outlive its front.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pilotfish.config import Config, config_from_yaml
from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.engine.core import EngineCore
from pilotfish.engine.factory import build_engine
from pilotfish.engine.head_factory import build_head_engine
from pilotfish.engine.parent import end_with_parent
from pilotfish.engine.threaded import WAITING_POLL_S, Core
from pilotfish.engine.verdict_holding import VerdictHolding
from pilotfish.engine.wire import EngineOutput, Failed, Ready, Role, encoder, input_decoder, setup_decoder
from pilotfish.engine.worker_socket import WorkerSocket
from pilotfish.errors import PilotfishError
from pilotfish.messages import Command, Event
from pilotfish.models.device import resolve_device
from pilotfish.telemetry.logs import configure_logging
from pilotfish.types import LoadReport

logger = logging.getLogger(__name__)

LOAD_INTERVAL_S = 0.5
"""An idle engine still reports its load this often."""
_NO_STEP_NS = 1 << 62
"""Longer than any token may wait for a step."""


class Outbox:
    """What goes to the front: events, at once or with those after them, and the load every so often."""

    def __init__(self, core: Core, front: WorkerSocket, holding: VerdictHolding | None) -> None:
        """holding: None holds nothing back."""
        self._core = core
        self._front = front
        self._holding = holding
        self._last_load: LoadReport | None = None
        self._last_report_s = 0.0

    def took(self, commands: Sequence[Command]) -> None:
        """Commands have come."""
        if self._holding is not None:
            self._send_held(self._holding.took(commands))

    def pause(self) -> None:
        """No step follows at once: nothing waits for it."""
        if self._holding is not None:
            self._send_held(self._holding.release())

    def gave(self, events: Sequence[Event], load: LoadReport) -> None:
        """A step has ended with these events, or there was nothing to do."""
        now_ns = time.monotonic_ns()
        if self._holding is not None:
            next_step_ns = load.step_time_ns if self._core.has_work else _NO_STEP_NS
            events = self._holding.gave(events, now_ns, next_step_ns)
        now_s = now_ns / 1e9
        if events or (load != self._last_load and now_s - self._last_report_s >= LOAD_INTERVAL_S):
            self._send(events, load)
            self._last_load, self._last_report_s = load, now_s

    def _send_held(self, held: Sequence[Event]) -> None:
        if held:
            self._send(held, self._core.load())

    def _send(self, events: Sequence[Event], load: LoadReport) -> None:
        self._front.send(encoder.encode(EngineOutput(list(events), load)))


def run(
    core: Core, front: WorkerSocket, delay: BatchingDelay | None = None, holding: VerdictHolding | None = None
) -> None:
    """Serve commands for ever: take what came, step while there is work, wait otherwise.

    delay: of a target, which waits a moment for sequences that come back soon. holding: see build_holding.
    """
    outbox = Outbox(core, front, holding)
    wait_s = 0.0  # the front tells its first peers the load
    while True:
        for message in front.receive(wait_s):
            arrived = input_decoder.decode(message)
            for command in arrived.commands:
                core.submit(command)
            outbox.took(arrived.commands)
            if delay is not None:
                delay.took(arrived.commands, arrived.arrived_ns)
        if delay is not None and core.has_work and (wait_ns := delay.wait_ns(time.monotonic_ns())) > 0:
            wait_s = wait_ns / 1e9
            outbox.pause()
            continue
        events = _step(core, delay) if core.has_work else []
        if delay is not None and events:
            delay.gave(events, time.monotonic_ns())
        outbox.gave(events, core.load())
        wait_s = _wait_s(core)


def _step(core: Core, delay: BatchingDelay | None) -> Sequence[Event]:
    return core.step(None if delay is None else delay.max_rows(time.monotonic_ns()))


def _wait_s(core: Core) -> float:
    """How long to wait for commands before the next step."""
    if core.has_work:
        return 0
    return WAITING_POLL_S if core.is_waiting else LOAD_INTERVAL_S


def build_core(config: Config, role: Role, rank_folder: Path | None = None) -> Core:
    """What the configuration asks for. Raises PilotfishError kinds of loading."""
    if role == "draft" and config.draft.proposer == "eagle3":
        return build_head_engine(config)
    return build_engine(config, role, rank_folder=rank_folder)


def build_holding(config: Config, role: Role) -> VerdictHolding | None:
    """What lets tokens wait as long as a Decode allows; None: each leaves at once.

    Only a target that computes on the CPU has it: a message takes from its steps what the services compute for it. A
    GPU's steps lose nothing, and there the time between tokens counts.
    """
    if role == "target" and resolve_device(config.target.engine.device).type == "cpu":
        return VerdictHolding()
    return None


def main() -> None:
    """Parse the arguments, load the model, serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", type=int, required=True, help="inherited descriptor")
    parser.add_argument("--role", required=True, choices=("target", "draft"))
    arguments = parser.parse_args()
    # Ctrl-C reaches the whole process group; the front decides when its engine ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    front = WorkerSocket(arguments.socket)
    setup = setup_decoder.decode(front.receive()[0])
    config = config_from_yaml(setup.config)
    configure_logging(config.log_level, config.telemetry.log_format, f"{setup.role}_engine")
    try:
        core = build_core(config, setup.role, Path(setup.rank_folder) if setup.rank_folder else None)
    except PilotfishError as error:
        front.send(encoder.encode(Failed(type(error).__name__, str(error))))
        sys.exit(1)
    front.send(encoder.encode(Ready(core.model, core.limits)))
    delay = None
    if setup.role == "target" and isinstance(core, EngineCore):
        delay = BatchingDelay(core.step_costs, config.target.engine.max_batch_tokens)
    run(core, front, delay, build_holding(config, setup.role))


if __name__ == "__main__":
    main()
