"""What a run measures of itself, on a clock of the test's."""

from __future__ import annotations

import asyncio

import pytest

from orchestrator.answers.sequence import Sequence
from orchestrator.control.decision import Decision
from orchestrator.control.reasons import Reason
from orchestrator.drafting.drafter import DraftBlock
from orchestrator.round import RemoteRound
from orchestrator.target import RemoteTarget
from pilotfish.messages import Command, Decode, Event, Verdict
from pilotfish.types import LoadReport, SamplingParams

PROMPT = (1, 2, 3)
STEP_S = 0.01
PREFILL_NS = 7_000_000
PLAIN = Decision(0, 32, Reason.LOAD)


class Clock:
    """In the place of the module `time` where arrivals are stamped."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class SteadyTarget:
    """A replica whose steps take STEP_S."""

    def __init__(self, link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._length = len(PROMPT)
        link.send = self.take

    def take(self, command: Command) -> None:
        if isinstance(command, Decode) and command.base_length == len(PROMPT):
            asyncio.get_running_loop().call_soon(self.tell)

    def tell(self) -> None:
        """A step, with a prefill beside it."""
        self._clock.now_s += STEP_S
        self._link.load = LoadReport(prefill_time_ns=self._link.load.prefill_time_ns + PREFILL_NS)
        self._link.mailboxes[1].deliver(Verdict(1, self._length, 0, 0, (self._length % 50,)))
        self._length += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("orchestrator.replicas.remote_sequence.time", clock)
    return clock


@pytest.fixture
def sequence(sequence_of) -> Sequence:
    return sequence_of(PROMPT, SamplingParams(temperature=0, max_tokens=100), num_speculative_tokens=0)


def measured(run: RemoteRound, sequence: Sequence) -> tuple[int, int, float, float, float]:
    return sequence.num_output_tokens, run.num_decoded_tokens, run.elapsed_s, run.token_s, run.prefill_s


async def test_a_run_that_is_extended_is_measured_anew(memory_pool, memory_link, sequence, clock) -> None:
    """With its last quarter, which the target goes on with meanwhile."""
    link = memory_link("a")
    steady = SteadyTarget(link, clock)
    target = RemoteTarget(memory_pool(link), acquire_timeout_s=5, max_run_tokens=64)
    run, found = target.decode(sequence, 32), []
    async for verdict in run:
        sequence.commit(verdict)
        if run.is_running_out and not found:
            found.append(measured(run, sequence))
            run.go_on(PLAIN, PLAIN)
        if not run.is_over:
            steady.tell()
    found.append(measured(run, sequence))
    first, extended = found
    assert first == (24, 24, pytest.approx(24 * STEP_S), pytest.approx(STEP_S), pytest.approx(PREFILL_NS / 1e9))
    assert extended == (64, 40, pytest.approx(40 * STEP_S), pytest.approx(STEP_S), pytest.approx(PREFILL_NS / 1e9))
    target.close()


async def test_a_round_knows_of_prefills_since_the_verdict_before_it(memory_pool, memory_link, sequence) -> None:
    """Also those that ended while it waited for its draft: they are part of what it took from verdict to verdict."""
    link = memory_link("a")
    target = RemoteTarget(memory_pool(link), acquire_timeout_s=5, max_run_tokens=64)

    def prefilled(seconds: int) -> None:
        link.load = LoadReport(prefill_time_ns=link.load.prefill_time_ns + seconds * 10**9)

    async def finished(run: RemoteRound) -> RemoteRound:
        async for verdict in run:
            sequence.commit(verdict)
        return run

    def arriving(event: Event) -> list[Event]:
        prefilled(100)
        return [event]

    link.on_event = arriving
    await finished(target.decode(sequence, 1))
    prefilled(30)
    assert (await finished(target.verify(sequence, DraftBlock((1, 2))))).round_prefill_s == 130
    link.load = LoadReport()  # it was started anew
    link.on_event = lambda event: (event,)
    assert (await finished(target.verify(sequence, DraftBlock((1, 2))))).round_prefill_s == 0
    target.close()
