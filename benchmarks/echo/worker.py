"""`python -m echo.worker`: an EchoCore in a process of its own, in the place of pilotfish.engine.process.worker."""

from __future__ import annotations

import argparse

from echo.core import FIRST_TOKEN_ID, NUM_TOKEN_IDS, EchoCore

from pilotfish.engine.process.wire import EngineOutput, Ready, encoder, input_decoder
from pilotfish.engine.process.worker_socket import WorkerSocket, end_with_parent
from pilotfish.types import Limits

LIMITS = Limits(max_draft_tokens=16, max_sequences=1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--role", required=True)
    front = WorkerSocket(parser.parse_args().socket)
    end_with_parent()
    front.receive()  # what it is to load
    core = EchoCore(LIMITS, vocab_size=FIRST_TOKEN_ID + NUM_TOKEN_IDS)
    front.send(encoder.encode(Ready(core.model, core.limits)))
    while True:
        for message in front.receive(0 if core.has_work else None):
            for command in input_decoder.decode(message).commands:
                core.submit(command)
        front.send(encoder.encode(EngineOutput(core.step(), core.load())))


if __name__ == "__main__":
    main()
