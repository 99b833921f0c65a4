"""`python -m tests.support.emulated_worker`: the engine process without a model, at no cost a step.

Speaks pilotfish.engine.process.wire as pilotfish.engine.process.worker does; tests put it in that one's place.
`target.model` (or `draft.model`) set to `fail:KIND` makes the start fail so.
"""

import argparse
import sys

from pilotfish.config import config_from_yaml
from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.engine.process.wire import (
    EngineOutput,
    Failed,
    Ready,
    WorkerSocket,
    encoder,
    input_decoder,
    setup_decoder,
)
from pilotfish.types import Limits, ModelInfo

_FAIL = "fail:"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--role", required=True, choices=("target", "draft"))
    arguments = parser.parse_args()
    front = WorkerSocket(arguments.socket)
    setup = setup_decoder.decode(front.receive()[0])
    config = config_from_yaml(setup.config)
    service = config.target if arguments.role == "target" else config.draft
    if service.model.startswith(_FAIL):
        print(f"asked to fail with {service.model}", file=sys.stderr, flush=True)
        front.send(encoder.encode(Failed(service.model.removeprefix(_FAIL), "the emulated engine was told to fail")))
        return 1
    language_model = HashLanguageModel()
    model = ModelInfo(
        model_id="emulated",
        tokenizer_fingerprint="emulated",
        vocab_size=language_model.vocab_size,
        max_context_tokens=1 << 20,
        deterministic=True,
        emulated=True,
    )
    limits = Limits(max_draft_tokens=service.engine.max_draft_tokens, max_sequences=service.engine.max_sequences)
    core = EmulatedCore(model, limits, language_model)
    front.send(encoder.encode(Ready(core.model, core.limits, service.engine.step_timeout_s)))
    _serve(core, front)
    return 0


def _serve(core: EmulatedCore, front: WorkerSocket) -> None:
    while True:
        for message in front.receive(0 if core.has_work else None):
            for command in input_decoder.decode(message).commands:
                core.submit(command)
        front.send(encoder.encode(EngineOutput(core.step(), core.load())))


if __name__ == "__main__":
    sys.exit(main())
