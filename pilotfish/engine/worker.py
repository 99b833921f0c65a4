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
from pathlib import Path

from pilotfish.config import Config, config_from_yaml
from pilotfish.engine.factory import build_engine
from pilotfish.engine.gathering import StepGathering
from pilotfish.engine.head_factory import build_head_engine
from pilotfish.engine.parent import end_with_parent
from pilotfish.engine.threaded import WAITING_POLL_S, Core
from pilotfish.engine.wire import EngineOutput, Failed, Ready, Role, commands_decoder, encoder, setup_decoder
from pilotfish.engine.worker_socket import WorkerSocket
from pilotfish.errors import PilotfishError
from pilotfish.telemetry.logs import configure_logging
from pilotfish.types import LoadReport

logger = logging.getLogger(__name__)

LOAD_INTERVAL_S = 0.5
"""An idle engine still reports its load this often."""


def run(core: Core, front: WorkerSocket, gathering: StepGathering | None = None) -> None:
    """Serve commands for ever: take what came, step while there is work, wait otherwise.

    gathering: of a target, which waits a moment for sequences that come back soon.
    """
    last_load: LoadReport | None = None
    last_report = 0.0
    wait_s = LOAD_INTERVAL_S
    while True:
        commands = [command for message in front.receive(wait_s) for command in commands_decoder.decode(message)]
        for command in commands:
            core.submit(command)
        if gathering is not None:
            now_ns = time.monotonic_ns()
            gathering.took(commands, now_ns, is_seen=wait_s > 0)
            # What came changes what is worth waiting for; nothing came: enough of it.
            if core.has_work and (commands or not wait_s) and (wait_ns := gathering.wait_ns(now_ns)) > 0:
                wait_s = wait_ns / 1e9
                continue
        events = core.step() if core.has_work else []
        now = time.monotonic()
        load = core.load()
        if gathering is not None and events:
            gathering.gave(events, load, time.monotonic_ns())
        wait_s = _wait_s(core)
        if events or (load != last_load and now - last_report >= LOAD_INTERVAL_S):
            front.send(encoder.encode(EngineOutput(events, load)))
            last_load, last_report = load, now


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
    gathering = StepGathering(config.target.engine.max_batch_tokens) if setup.role == "target" else None
    run(core, front, gathering)


if __name__ == "__main__":
    main()
