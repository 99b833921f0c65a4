"""What a run measures of itself, on a clock of the test's."""

from __future__ import annotations

import pytest

from orchestrator.answers.sequence import Sequence
from orchestrator.drafting.drafter import DraftBlock
from orchestrator.round import RemoteRound
from orchestrator.target import RemoteTarget
from pilotfish.messages import Event
from pilotfish.types import LoadReport, SamplingParams

PROMPT = (1, 2, 3)


@pytest.fixture
def sequence(sequence_of) -> Sequence:
    return sequence_of(PROMPT, SamplingParams(temperature=0, max_tokens=100), num_speculative_tokens=0)


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
