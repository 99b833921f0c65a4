import threading

import pytest

from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.errors import ResourceExhaustedError, UnavailableError
from pilotfish.messages import Decode, Event, Opened, OpenSequence, Verdict
from pilotfish.types import Limits, ModelInfo, SamplingParams
from tests.support.threaded_engine import ThreadedEngine

GREEDY = SamplingParams(temperature=0)
MODEL = ModelInfo(model_id="m", tokenizer_fingerprint="", vocab_size=256, max_context_tokens=100)


def emulated_core() -> EmulatedCore:
    return EmulatedCore(MODEL, Limits(max_draft_tokens=4, max_sequences=4), HashLanguageModel())


class FailingCore(EmulatedCore):
    def step(self) -> list[Event]:
        raise self.error


def failing_core(error: Exception) -> FailingCore:
    core = FailingCore(MODEL, Limits(max_draft_tokens=4, max_sequences=4), HashLanguageModel())
    core.error = error
    return core


def engine_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "engine"}


async def test_commands_are_answered_and_close_ends_the_thread() -> None:
    others = engine_threads()  # of services that other tests keep for a session
    engine = ThreadedEngine(emulated_core())
    assert len(engine_threads() - others) == 1
    engine.send([OpenSequence(1, (1, 2), GREEDY), Decode(1, 2, 3)])
    events: list[Event] = []
    while len(events) < 4:
        events += await engine.receive()
    assert events[0] == Opened(1, 0)
    assert all(isinstance(event, Verdict) for event in events[1:])
    assert engine.load.num_sequences_running == 1
    assert engine.model == MODEL
    await engine.close()
    await engine.close()
    assert not engine_threads() - others
    with pytest.raises(UnavailableError, match="closed"):
        engine.send([])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ZeroDivisionError("oh"), r"the engine failed: ZeroDivisionError\('oh'\)"),
        (ResourceExhaustedError("full"), "full"),
    ],
)
async def test_a_failing_core_is_told(error: Exception, message: str) -> None:
    others = engine_threads()
    engine = ThreadedEngine(failing_core(error))
    engine.send([OpenSequence(1, (1, 2), GREEDY)])
    with pytest.raises(UnavailableError, match=message):
        await engine.receive()
    await engine.close()
    assert not engine_threads() - others
