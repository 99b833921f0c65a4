"""The worker's loop, its front and its core in the test's hands."""

import itertools
import time
from types import SimpleNamespace

import pytest

from pilotfish.config import Config, EngineConfig, TargetConfig
from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.engine.process import worker
from pilotfish.engine.process.wire import EngineInput, encoder, output_decoder
from pilotfish.engine.process.worker import LOAD_INTERVAL_S, run
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
        return [encoder.encode(EngineInput(commands, time.monotonic_ns()))] if commands else []

    def send(self, message: bytes) -> None:
        self.sent.append(message)

    @property
    def sent_tokens(self) -> list[list[tuple[int, ...]]]:
        """Of the verdicts in each message."""
        return [[event.token_ids for event in output_decoder.decode(message).events] for message in self.sent]


class Core:
    """Answers each command with a verdict in the next step."""

    model = ModelInfo(model_id="m", tokenizer_fingerprint="f", vocab_size=8, max_context_tokens=64)
    limits = Limits(max_draft_tokens=8, max_sequences=8)
    is_waiting = False

    def __init__(self) -> None:
        self.waiting: list[Command] = []
        self.steps: list[int] = []
        self.limits_of_steps: list[int | None] = []
        self.run: list[Event] = []
        """What the next steps give."""

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.run)

    def submit(self, command: Command) -> None:
        self.waiting.append(command)

    def step(self, max_rows: int | None = None) -> list[Event]:
        self.limits_of_steps.append(max_rows)
        if self.run:
            self.steps.append(1)
            return [self.run.pop(0)]
        commands, self.waiting = self.waiting, []
        self.steps.append(len(commands))
        return [Verdict(each.sequence_id, 4, 2 if isinstance(each, Verify) else 0, 0, (1,)) for each in commands]

    def go_on(self, events: list[Event]) -> list[Event]:
        return events

    def load(self) -> LoadReport:
        return LoadReport(num_step_tokens=3, step_time_ns=STEP_NS)


COSTS = StepCosts.sampled(lambda _sequences, _rows: STEP_NS / 1e9, 512)


class Delay(BatchingDelay):
    """Wants to wait as scripted."""

    def __init__(self, *waits_ns: int) -> None:
        super().__init__(COSTS, 512)
        self._waits_ns = list(waits_ns)

    def wait_ns(self, now_ns: int) -> int:
        return self._waits_ns.pop(0) if self._waits_ns else 0


def verify(sequence_id: int) -> Verify:
    return Verify(sequence_id, 4, (1, 2))


def served(front: Front, delay: BatchingDelay | None = None, core: Core | None = None) -> Core:
    core = core or Core()
    with pytest.raises(SystemExit):
        run(core, front, delay)  # type: ignore[arg-type]
    return core


def test_it_waits_while_there_is_nothing_to_do() -> None:
    front = Front([Decode(1, 4, 8)], [])
    core = served(front)
    assert core.steps == [1]
    assert front.waits_s[1:] == [LOAD_INTERVAL_S] * 2
    assert len(front.sent) == 1


def test_what_comes_during_a_wait_is_in_the_step() -> None:
    front = Front([verify(1)], [verify(2)])
    core = served(front, Delay(3_000_000, 0))
    assert core.steps == [2]
    assert front.waits_s[1] == pytest.approx(0.003)


def test_a_wait_that_brings_nothing_ends_in_a_step() -> None:
    front = Front([verify(1)], [], [], [])
    core = served(front, Delay(3_000_000, 0))
    assert core.steps == [1]


def test_each_arrival_is_a_reason_to_wait_on() -> None:
    front = Front([verify(1)], [verify(2)], [verify(3)], [])
    core = served(front, Delay(3_000_000, 2_000_000, 1_000_000))
    assert core.steps == [3]
    assert front.waits_s[1:4] == [pytest.approx(0.003), pytest.approx(0.002), pytest.approx(0.001)]


def test_the_load_is_told_before_any_command_comes() -> None:
    front = Front([])
    served(front)
    assert front.waits_s[0] == 0
    assert output_decoder.decode(front.sent[0]).load.step_time_ns == STEP_NS


def test_an_idle_engine_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its load does not change: what hangs is known by its silence."""
    times = itertools.count(1.0, 0.9 * LOAD_INTERVAL_S)
    clock = SimpleNamespace(monotonic=lambda: next(times), monotonic_ns=time.monotonic_ns)
    monkeypatch.setattr(worker, "time", clock)
    front = Front([], [], [], [])
    served(front)
    assert len(front.sent) == 2


@pytest.mark.parametrize(
    ("ranks", "configured_s", "expected_s"), [(1, 0, 0), (2, 0, worker.STEP_TIMEOUT_S), (1, 7, 7), (2, 7, 7)]
)
def test_what_waits_for_ranks_has_a_deadline(ranks: int, configured_s: float, expected_s: float) -> None:
    engine = EngineConfig(step_timeout_s=configured_s)
    config = Config(target=TargetConfig(tensor_parallel_size=ranks, engine=engine))
    assert worker.silence_timeout_s(config, "target") == expected_s


def test_a_step_is_as_large_as_the_delay_says() -> None:
    delay = Delay(0)
    asked_ns = []
    delay.max_rows = lambda now_ns: asked_ns.append(now_ns) or 7  # type: ignore[method-assign, func-returns-value]
    before_ns = time.monotonic_ns()
    assert served(Front([verify(1), verify(2)], [], []), delay).limits_of_steps == [7]
    assert before_ns <= asked_ns[0] <= time.monotonic_ns()
    assert served(Front([verify(1)], [])).limits_of_steps == [None]


def test_the_delay_hears_of_steps() -> None:
    front = Front([verify(1), verify(2)], [], [verify(1)])
    served(front, BatchingDelay(COSTS, 512))
    assert any(0 < wait_s < LOAD_INTERVAL_S for wait_s in front.waits_s)


def test_what_a_step_sends_before_its_end_leaves_at_once_and_is_told_to_the_delay() -> None:
    core, front, delay = in_a_run(2), Front([Decode(1, 4, 8)], [], [], []), Delay()
    told: list[list[Event]] = []
    delay.gave = lambda events, now_ns: told.append(list(events))  # type: ignore[method-assign]
    step = core.step

    def drafting_step(max_rows: int | None = None) -> list[Event]:
        events = step(max_rows)
        if told:
            return events
        core.send_first(events)
        assert front.sent_tokens[-1] == [(0,)]
        return []

    core.step = drafting_step  # type: ignore[method-assign]
    served(front, delay, core)
    assert [tokens for tokens in front.sent_tokens if tokens] == [[(0,)], [(1,)]]
    assert [[event.token_ids for event in events] for events in told] == [[(0,)], [(1,)]], "of each step once"


def in_a_run(num_tokens: int) -> Core:
    """Its steps give a token each, whatever comes."""
    core = Core()
    core.submit = lambda command: None  # type: ignore[method-assign]
    core.run = [Verdict(1, 4 + index, 0, 0, (index,)) for index in range(num_tokens)]
    return core


def test_each_token_leaves_after_its_step() -> None:
    front = Front([Decode(1, 4, 100)], [], [])
    served(front, core=in_a_run(3))
    assert front.sent_tokens == [[(0,)], [(1,)], [(2,)]]
