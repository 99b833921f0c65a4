"""The worker's loop, its front and its core in the test's hands."""

from __future__ import annotations

import pytest

from pilotfish.engine.gathering import StepGathering
from pilotfish.engine.wire import encoder
from pilotfish.engine.worker import LOAD_INTERVAL_S, run
from pilotfish.messages import Command, Decode, Event, Verdict, Verify
from pilotfish.types import Limits, LoadReport, ModelInfo

STEP_NS = 8_000_000


class Front:
    """What comes at each look, and how long each look waited. Ends the worker when nothing is left."""

    def __init__(self, *batches: list[Command]) -> None:
        self._batches = list(batches)
        self.waits_s: list[float] = []
        self.sent: list[bytes] = []

    def receive(self, timeout_s: float) -> list[bytes]:
        self.waits_s.append(timeout_s)
        if not self._batches:
            raise SystemExit(0)
        commands = self._batches.pop(0)
        return [encoder.encode(commands)] if commands else []

    def send(self, message: bytes) -> None:
        self.sent.append(message)


class Core:
    """Answers each command with a verdict in the next step."""

    model = ModelInfo(model_id="m", tokenizer_fingerprint="f", vocab_size=8, max_context_tokens=64)
    limits = Limits(max_draft_tokens=8, max_sequences=8)
    is_waiting = False

    def __init__(self) -> None:
        self.waiting: list[Command] = []
        self.steps: list[int] = []

    @property
    def has_work(self) -> bool:
        return bool(self.waiting)

    def submit(self, command: Command) -> None:
        self.waiting.append(command)

    def step(self) -> list[Event]:
        commands, self.waiting = self.waiting, []
        self.steps.append(len(commands))
        return [Verdict(each.sequence_id, 4, 2 if isinstance(each, Verify) else 0, 0, (1,)) for each in commands]

    def load(self) -> LoadReport:
        return LoadReport(num_step_tokens=3, step_time_ns=STEP_NS)


class Gathering(StepGathering):
    """Wants to wait as scripted."""

    def __init__(self, *waits_ns: int) -> None:
        super().__init__(512)
        self._waits_ns = list(waits_ns)

    def wait_ns(self, now_ns: int) -> int:
        return self._waits_ns.pop(0) if self._waits_ns else 0


def verify(sequence_id: int) -> Verify:
    return Verify(sequence_id, 4, (1, 2))


def served(front: Front, gathering: StepGathering | None = None) -> Core:
    core = Core()
    with pytest.raises(SystemExit):
        run(core, front, gathering)  # type: ignore[arg-type]
    return core


def test_it_waits_while_there_is_nothing_to_do() -> None:
    front = Front([Decode(1, 4, 8)], [])
    core = served(front)
    assert core.steps == [1]
    assert front.waits_s == [LOAD_INTERVAL_S] * 3
    assert len(front.sent) == 1


def test_what_comes_during_a_wait_is_in_the_step() -> None:
    front = Front([verify(1)], [verify(2)])
    core = served(front, Gathering(3_000_000, 0))
    assert core.steps == [2]
    assert front.waits_s[1] == pytest.approx(0.003)


def test_a_wait_that_brings_nothing_ends_in_a_step() -> None:
    front = Front([verify(1)], [], [])
    core = served(front, Gathering(3_000_000, 3_000_000, 3_000_000))
    assert core.steps == [1]


def test_each_arrival_is_a_reason_to_wait_on() -> None:
    front = Front([verify(1)], [verify(2)], [verify(3)], [])
    core = served(front, Gathering(3_000_000, 2_000_000, 1_000_000))
    assert core.steps == [3]
    assert front.waits_s[1:4] == [pytest.approx(0.003), pytest.approx(0.002), pytest.approx(0.001)]


def test_an_idle_core_waits_for_nobody() -> None:
    front = Front([], [])
    core = served(front, Gathering(3_000_000))
    assert core.steps == []
    assert front.waits_s == [LOAD_INTERVAL_S] * 3


def test_the_gathering_hears_of_steps() -> None:
    front = Front([verify(1), verify(2)], [verify(1)])
    served(front, StepGathering(512))
    assert any(0 < wait_s < LOAD_INTERVAL_S for wait_s in front.waits_s)
