"""Drafts that come while a run decodes: they end it, or they leave no trace."""

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.messages import Decode, Event, OpenSequence, SequenceError, Verdict, Verify
from pilotfish.types import AcceptanceMode, SamplingParams, SequenceErrorCode, SparseDistribution
from tests.support.engine_events import GreedyText, MakeCore, errors_of, settle, text_of, verdicts_of

GREEDY = SamplingParams(temperature=0, max_tokens=100)
PROMPT = (1, 5, 9, 2, 33, 7)
RUN = 12


def run_with_draft(
    core: EngineCore, draft: Sequence[int], *, num_steps: int, sampling: SamplingParams = GREEDY, **more
) -> list[Event]:
    """The events of a run into which a draft on its first tokens comes after num_steps steps."""
    core.submit(OpenSequence(1, PROMPT, sampling))
    core.submit(Decode(1, len(PROMPT), RUN))
    events = [event for _ in range(num_steps) for event in core.step()]
    core.submit(Verify(1, len(PROMPT), tuple(draft), **more))
    return [*events, *settle(core)]


def verdicts(events: Sequence[Event]) -> list[Verdict]:
    assert not errors_of(events)
    return verdicts_of(events)


@pytest.mark.parametrize("num_steps", [0, 1, 3])
def test_a_draft_that_foresaw_the_run_ends_it(make_core: MakeCore, greedy_text: GreedyText, num_steps: int) -> None:
    expected = greedy_text(PROMPT, RUN)
    found = verdicts(run_with_draft(make_core(), expected[:5], num_steps=num_steps))
    assert [verdict.num_draft_tokens for verdict in found] == [0] * num_steps + [5 - num_steps]
    assert text_of(found) == expected[:6]


@pytest.mark.parametrize("fault", ["wrong beginning", "nothing left", "a tree"])
def test_a_draft_that_comes_to_nothing_leaves_no_trace(
    make_core: MakeCore, greedy_text: GreedyText, fault: str
) -> None:
    expected = greedy_text(PROMPT, RUN)
    draft = {"wrong beginning": [(expected[0] + 1) % 64, *expected[1:5]], "nothing left": expected[:2]}
    parents = (-1, 0, 1, -1) if fault == "a tree" else ()
    events = run_with_draft(make_core(), draft.get(fault, expected[:4]), num_steps=2, parents=parents)
    found = verdicts(events)
    assert [verdict.num_draft_tokens for verdict in found] == [0] * RUN
    assert text_of(found) == expected


def test_after_a_run_a_late_draft_is_stale(make_core: MakeCore, greedy_text: GreedyText) -> None:
    core, expected = make_core(), greedy_text(PROMPT, RUN)
    events = run_with_draft(core, [*expected, 1, 2], num_steps=RUN)
    error = events[-1]
    assert isinstance(error, SequenceError)
    assert (error.code, error.base_length) == (SequenceErrorCode.STALE, len(PROMPT))
    core.submit(Decode(1, len(PROMPT) + RUN, 1))
    assert len(verdicts(settle(core))) == 1


def test_the_distributions_are_cut_with_their_tokens(make_core: MakeCore) -> None:
    sampling = SamplingParams(temperature=1.0, seed=3, max_tokens=100, acceptance=AcceptanceMode.REJECTION)
    core = make_core()
    core.submit(OpenSequence(1, PROMPT, sampling))
    core.submit(Decode(1, len(PROMPT), RUN))
    (first,) = verdicts([event for _ in range(1) for event in core.step() if isinstance(event, Verdict)])
    draft = (first.token_ids[0], 7, 9)
    probs = tuple(SparseDistribution((token_id,), (1.0,)) for token_id in draft)
    core.submit(Verify(1, len(PROMPT), draft, probs))
    assert verdicts(settle(core))[-1].num_draft_tokens == 2


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_drafts_at_any_time_leave_the_greedy_text(
    make_core: MakeCore, greedy_text: GreedyText, data: st.DataObject
) -> None:
    core, expected = make_core(kv_cache_tokens=64), greedy_text(PROMPT, 30)
    core.submit(OpenSequence(1, PROMPT, SamplingParams(temperature=0, max_tokens=24)))
    output: list[int] = []
    goal = 0
    while len(output) < 24:
        if len(output) >= goal:
            goal = min(24, len(output) + data.draw(st.integers(1, 8), label="run"))
            core.submit(Decode(1, len(PROMPT) + len(output), goal - len(output)))
        if data.draw(st.booleans(), label="cut in"):
            start = max(0, len(output) - data.draw(st.integers(0, 3), label="late by"))
            num_right, num_wrong = data.draw(st.integers(0, 6), label="right"), data.draw(st.integers(0, 2))
            draft = [
                *expected[start : start + num_right],
                *(63 - token for token in expected[start : start + num_wrong]),
            ]
            core.submit(Verify(1, len(PROMPT) + start, tuple(draft)))
        for verdict in verdicts(core.step()):
            assert verdict.base_length == len(PROMPT) + len(output)
            output += verdict.token_ids
            if verdict.num_draft_tokens:
                goal = 0
    assert output == expected[:24]
