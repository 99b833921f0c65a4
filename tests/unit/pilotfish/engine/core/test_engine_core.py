"""The engine core against transformers' own greedy text, whatever the schedule."""

from collections.abc import Sequence

import pytest

from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.messages import CloseSequence, Decode, Opened, OpenSequence, Proposal, Propose, Verify
from pilotfish.types import (
    AcceptanceMode,
    FinishReason,
    SamplingParams,
    SequenceErrorCode,
    SparseDistribution,
    TokenOrigin,
)
from tests.support.engine_events import GreedyText, MakeCore, errors_of, settle, text_of, verdicts_of

GREEDY = SamplingParams(temperature=0, max_tokens=100)
PROMPT = (1, 5, 9, 2, 33, 7)


def test_a_decode_run_is_the_greedy_text(make_core: MakeCore, greedy_text: GreedyText) -> None:
    core = make_core()
    core.submit(OpenSequence(1, PROMPT, GREEDY))
    core.submit(Decode(1, len(PROMPT), 20))
    events = settle(core)
    assert isinstance(events[0], Opened)
    assert text_of(events) == greedy_text(PROMPT, 20)
    assert all(verdict.origins == (TokenOrigin.PLAIN,) for verdict in verdicts_of(events))
    assert [verdict.base_length for verdict in verdicts_of(events)] == list(range(len(PROMPT), len(PROMPT) + 20))
    timings = [verdict.timings for verdict in verdicts_of(events)]
    assert all(each.queue_time_ns >= 0 and each.compute_time_ns > 0 for each in timings)


def test_chained_runs_extend_each_other(make_core: MakeCore, greedy_text: GreedyText) -> None:
    core = make_core()
    core.submit(OpenSequence(1, PROMPT, GREEDY))
    core.submit(Decode(1, len(PROMPT), 4))
    core.step()
    core.submit(Decode(1, len(PROMPT) + 1, 9))  # to 10 tokens, sent while the first run is on
    core.submit(Decode(1, len(PROMPT), 2))  # shorter than what is agreed: no effect
    assert text_of(settle(core)) == greedy_text(PROMPT, 10)[1:]


def test_verification_reports_what_became_of_the_drafts(make_core: MakeCore, greedy_text: GreedyText) -> None:
    core = make_core()
    right = greedy_text(PROMPT, 8)
    core.submit(OpenSequence(1, PROMPT, GREEDY))
    core.submit(Verify(1, 6, (*right[:2], (right[2] + 1) % 64, right[3])))
    first = verdicts_of(settle(core))[0]
    assert (first.num_draft_tokens, first.num_accepted_tokens, list(first.token_ids)) == (4, 2, right[:3])
    assert first.origins == (TokenOrigin.ACCEPTED, TokenOrigin.ACCEPTED, TokenOrigin.RECOVERED)
    core.submit(Verify(1, 9, tuple(right[3:5])))
    second = verdicts_of(settle(core))[0]
    assert second.origins == (TokenOrigin.ACCEPTED, TokenOrigin.ACCEPTED, TokenOrigin.BONUS)


def test_a_stop_token_inside_an_accepted_block_cuts_it(make_core: MakeCore, greedy_text: GreedyText) -> None:
    core = make_core()
    right = greedy_text(PROMPT, 6)
    stop = right[2]
    cut = right.index(stop) + 1
    core.submit(OpenSequence(1, PROMPT, SamplingParams(temperature=0, stop_token_ids=(stop,))))
    core.submit(Verify(1, 6, tuple(right[:5])))
    verdict = verdicts_of(settle(core))[0]
    assert list(verdict.token_ids) == right[:cut]
    assert verdict.num_accepted_tokens == cut
    assert verdict.finish_reason is FinishReason.STOP
    assert core.kv_cache.pool.num_used == 0
    core.submit(Decode(1, 6 + cut, 1))
    assert errors_of(settle(core))[0].code is SequenceErrorCode.UNKNOWN_SEQUENCE


@pytest.mark.parametrize("speculate", [False, True])
def test_max_tokens_and_context_end_a_sequence(make_core: MakeCore, greedy_text: GreedyText, speculate: bool) -> None:
    core = make_core()
    right = greedy_text(PROMPT, 6)
    core.submit(OpenSequence(1, PROMPT, SamplingParams(temperature=0, max_tokens=3)))
    core.submit(Verify(1, 6, tuple(right[:5])) if speculate else Decode(1, 6, 50))
    events = settle(core)
    assert text_of(events) == right[:3]
    assert verdicts_of(events)[-1].finish_reason is FinishReason.LENGTH
    long_prompt = tuple(range(60)) * 2 + (1, 2, 3, 4, 5, 6)  # 126 of 128
    core.submit(OpenSequence(2, long_prompt, GREEDY))
    core.submit(Verify(2, 126, (1, 2, 3, 4)) if speculate else Decode(2, 126, 50))
    events = settle(core)
    if not verdicts_of(events, 2)[-1].finish_reason:
        core.submit(Decode(2, 126 + len(text_of(events, 2)), 50))
        events += settle(core)
    assert text_of(events, 2) == greedy_text(long_prompt, 2)
    assert verdicts_of(events, 2)[-1].finish_reason is FinishReason.LENGTH


def test_the_prefix_cache_is_used_and_changes_nothing(make_core: MakeCore, greedy_text: GreedyText) -> None:
    core = make_core()
    prompt = tuple(range(50))
    for sequence_id, (salt, cached) in enumerate((("", 0), ("", 48), ("a", 0), ("b", 0), ("a", 48))):
        core.submit(OpenSequence(sequence_id, prompt, GREEDY, cache_salt=salt))
        core.submit(Decode(sequence_id, 50, 5))
        events = settle(core)
        assert [event.num_cached_tokens for event in events if isinstance(event, Opened)] == [cached]
        assert text_of(events, sequence_id) == greedy_text(prompt, 5)
        core.submit(CloseSequence(sequence_id))
        core.step()
    assert core.kv_cache.pool.num_used == 0


@pytest.mark.parametrize("acceptance", list(AcceptanceMode))
def test_sampled_text_survives_preemption(make_core: MakeCore, acceptance: AcceptanceMode) -> None:
    def run(core: EngineCore) -> dict[int, list[int]]:
        for index in range(4):
            core.submit(OpenSequence(index, (index, 9, 4) * 5, SamplingParams(seed=index, acceptance=acceptance)))
            core.submit(Decode(index, 15, 30))
        events = settle(core)
        return {index: text_of(events, index) for index in range(4)}

    roomy, tight = make_core(), make_core(kv_cache_tokens=96)
    expected = run(roomy)
    assert run(tight) == expected
    assert roomy.num_preemptions == 0
    assert tight.load().num_preemptions == tight.num_preemptions > 0


def test_rejection_verifies_with_the_distributions_that_came(make_core: MakeCore) -> None:
    core = make_core()
    core.submit(OpenSequence(1, PROMPT, SamplingParams(seed=4, acceptance=AcceptanceMode.REJECTION)))
    core.submit(Verify(1, 6, (3, 4)))
    assert "distributions" in errors_of(settle(core))[0].message
    one_hot = [SparseDistribution((token,), (1.0,)) for token in (3, 4)]
    core.submit(Verify(1, 6, (3, 4), tuple(one_hot)))
    assert verdicts_of(settle(core))[0].num_draft_tokens == 2


def test_proposals_rewind_by_statement(make_core: MakeCore, greedy_text: GreedyText) -> None:
    """A drafter that is its own target: after any committed text it drafts the greedy continuation."""
    core = make_core()
    core.submit(OpenSequence(1, PROMPT, GREEDY))

    def propose(committed: Sequence[int], new: Sequence[int], k: int) -> Proposal:
        core.submit(Propose(1, len(committed), tuple(new), k))
        (proposal,) = settle(core)[-1:]
        assert isinstance(proposal, Proposal)
        assert proposal.base_length == len(committed)
        return proposal

    committed = list(PROMPT)
    assert list(propose(committed, [], 5).draft_token_ids) == greedy_text(committed, 5)
    accepted = greedy_text(committed, 3)
    committed += [*accepted, 60]  # three accepted, one recovered
    assert list(propose(committed, [*accepted, 60], 4).draft_token_ids) == greedy_text(committed, 4)
    # The same statement again, and one that goes back further than the last.
    assert list(propose(committed, [*accepted, 60], 4).draft_token_ids) == greedy_text(committed, 4)
    other = [*PROMPT, 11, 12]
    assert list(propose(other, [11, 12], 2).draft_token_ids) == greedy_text(other, 2)
    core.submit(Propose(1, 40, (1,), 2))  # tokens in between are missing
    assert errors_of(settle(core))[0].code is SequenceErrorCode.UNKNOWN_SEQUENCE
    core.submit(CloseSequence(1))
    core.step()
    assert core.kv_cache.pool.num_used == 0


def test_a_rewind_into_a_shared_block_leaves_it_alone(make_core: MakeCore, greedy_text: GreedyText) -> None:
    core = make_core()
    head = tuple(range(20))
    core.submit(OpenSequence(1, head, GREEDY))
    core.submit(Propose(1, 40, tuple(range(20, 40)), 1))  # fills and registers blocks of 16
    settle(core)
    core.submit(Propose(1, 24, (20, 21, 5, 6), 3))  # goes back into the second block and differs
    assert list(settle(core)[-1].draft_token_ids) == greedy_text([*head, 20, 21, 5, 6], 3)  # type: ignore[union-attr]
    core.submit(OpenSequence(2, tuple(range(40)), GREEDY))
    core.submit(Decode(2, 40, 4))
    assert text_of(settle(core), 2) == greedy_text(range(40), 4)
