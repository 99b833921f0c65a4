"""Drafts that were prepared for a verdict: the target goes on with them, as if they had been sent after it."""

import pytest

from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.messages import CloseSequence, OpenSequence, Predrafted, Verdict, Verify
from pilotfish.types import AcceptanceMode, SamplingParams, SparseDistribution
from tests.support.engine_events import GreedyText, MakeCore, text_of, verdicts_of

PROMPT = (1, 5, 9, 2, 33, 7)
GREEDY = SamplingParams(temperature=0, max_tokens=100)


def verified(core: EngineCore, *prepared: Predrafted, draft: list[int], sampling: SamplingParams = GREEDY) -> Verdict:
    """The verdict on a draft; what was prepared came while the target computed it."""
    core.submit(OpenSequence(1, PROMPT, sampling))
    core.submit(Verify(1, len(PROMPT), tuple(draft)))
    events = core.step()
    for command in prepared:
        core.submit(command)
    (verdict,) = verdicts_of(core.go_on(events))
    return verdict


def outcomes(draft: list[int], text: list[int], *numbers_accepted: int, length: int = 3) -> Predrafted:
    """For each outcome, the text that follows it."""
    return Predrafted(
        1,
        len(PROMPT),
        tuple(draft),
        numbers_accepted,
        tuple(text[num_accepted] for num_accepted in numbers_accepted),
        tuple(
            token for num_accepted in numbers_accepted for token in text[num_accepted + 1 : num_accepted + 1 + length]
        ),
    )


@pytest.mark.parametrize("num_accepted", [0, 2, 4])
def test_the_target_goes_on_without_being_asked(
    make_core: MakeCore, greedy_text: GreedyText, num_accepted: int
) -> None:
    core, text = make_core(), greedy_text(PROMPT, 20)
    draft = [*text[:num_accepted], *((token + 1) % 64 for token in text[num_accepted:4])]
    first = verified(core, outcomes(draft, text, 1, num_accepted, 3), draft=draft)
    assert (first.num_accepted_tokens, first.num_next_draft_tokens) == (num_accepted, 3)
    (second,) = verdicts_of(core.go_on(core.step()))
    assert (second.base_length, second.num_draft_tokens, second.num_accepted_tokens) == (
        len(PROMPT) + num_accepted + 1,
        3,
        3,
    )
    assert second.num_next_draft_tokens == 0
    assert [*first.token_ids, *second.token_ids] == text[: num_accepted + 5]
    assert not core.has_work


def test_what_was_prepared_ends_with_its_sequence(make_core: MakeCore, greedy_text: GreedyText) -> None:
    core, text = make_core(), greedy_text(PROMPT, 20)
    core.submit(OpenSequence(1, PROMPT, GREEDY))
    core.submit(outcomes(text[:4], text, 4))
    core.submit(CloseSequence(1))
    assert verified(core, draft=text[:4]).num_next_draft_tokens == 0


def test_it_goes_on_and_on(make_core: MakeCore, greedy_text: GreedyText) -> None:
    core, text = make_core(), greedy_text(PROMPT, 20)
    core.submit(OpenSequence(1, PROMPT, GREEDY))
    core.submit(Verify(1, len(PROMPT), tuple(text[:2])))
    verdicts: list[Verdict] = []
    while len(text_of(verdicts)) < 12:
        length = len(text_of(verdicts))
        events = core.step()
        after = tuple(text[length + 3 : length + 5])
        core.submit(
            Predrafted(1, len(PROMPT) + length, tuple(text[length : length + 2]), (2,), (text[length + 2],), after)
        )
        verdicts += verdicts_of(core.go_on(events))
    assert [verdict.num_next_draft_tokens for verdict in verdicts] == [2] * 4
    assert text_of(verdicts) == text[:12]


@pytest.mark.parametrize("fault", ["another outcome", "another length", "another draft", "nothing prepared", "twice"])
def test_what_does_not_fit_leaves_no_trace(make_core: MakeCore, greedy_text: GreedyText, fault: str) -> None:
    core, text = make_core(), greedy_text(PROMPT, 20)
    fitting = outcomes(text[:4], text, 4)
    prepared = {
        "another outcome": [outcomes(text[:4], text, 3)],
        "another length": [Predrafted(1, len(PROMPT) - 1, tuple(text[:4]), (4,), (text[4],), (1, 2))],
        "another draft": [Predrafted(1, len(PROMPT), (9, 9, 9, 9), (4,), (text[4],), (1, 2))],
        "nothing prepared": [],
        "twice": [fitting, outcomes(text[:4], text, 3)],  # the last is what counts
    }[fault]
    verdict = verified(core, *prepared, draft=text[:4])
    assert verdict.num_next_draft_tokens == 0
    core.submit(fitting)  # too late
    assert core.go_on(core.step()) == []
    core.submit(Verify(1, len(PROMPT) + 5, tuple(text[5:7])))
    (following,) = verdicts_of(core.go_on(core.step()))
    assert list(following.token_ids) == text[5:8]
    assert following.num_next_draft_tokens == 0


def test_the_end_of_the_answer_is_kept(make_core: MakeCore, greedy_text: GreedyText) -> None:
    text = greedy_text(PROMPT, 20)
    for max_tokens, num_next in ((5, 0), (6, 0), (7, 1), (9, 3)):
        sampling = SamplingParams(temperature=0, max_tokens=max_tokens)
        core = make_core()
        verdict = verified(core, outcomes(text[:4], text, 4), draft=text[:4], sampling=sampling)
        assert verdict.num_next_draft_tokens == num_next
        assert (verdict.finish_reason is not None) == (max_tokens == 5)


def test_without_their_distributions_sampled_drafts_are_not_verified(make_core: MakeCore) -> None:
    sampling = SamplingParams(temperature=1, max_tokens=9, acceptance=AcceptanceMode.REJECTION)
    core = make_core()
    core.submit(OpenSequence(1, PROMPT, sampling))
    core.submit(Verify(1, len(PROMPT), (3,), (SparseDistribution((3,), (1.0,)),)))
    events = core.step()
    (verdict,) = verdicts_of(events)
    core.submit(Predrafted(1, len(PROMPT), (3,), (verdict.num_accepted_tokens,), verdict.token_ids[-1:], (1, 2)))
    assert core.go_on(events) == events


def test_a_plain_step_is_followed_by_nothing(make_core: MakeCore, greedy_text: GreedyText) -> None:
    core, text = make_core(), greedy_text(PROMPT, 20)
    assert verified(core, outcomes([], text, 0), draft=[]).num_next_draft_tokens == 0


def test_a_sequence_that_was_closed_meanwhile_does_not_go_on(make_core: MakeCore, greedy_text: GreedyText) -> None:
    core, text = make_core(), greedy_text(PROMPT, 20)
    core.submit(OpenSequence(1, PROMPT, GREEDY))
    core.submit(Verify(1, len(PROMPT), tuple(text[:4])))
    events = core.step()
    core.submit(outcomes(text[:4], text, 4))
    core.submit(CloseSequence(1))
    assert core.go_on(events) == events
    assert not core.has_work
    assert core.load().num_sequences_running == 0
