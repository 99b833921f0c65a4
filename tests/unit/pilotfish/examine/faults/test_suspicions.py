import re

import pytest

from pilotfish.examine.drafted_answer import DraftedAnswer, RehearsedDraft
from pilotfish.examine.faults.suspicions import least_gain, suspicions


def answers(
    share: float, *, category: str = "chat", temperature: float = 0.0, num_prompt_tokens: int = 9
) -> list[DraftedAnswer]:
    """Two of 101 tokens, of whose first drafts this share is accepted."""
    drafts = {place: RehearsedDraft((place if place % 100 < 100 * share else -1,)) for place in range(1, 101)}
    answer = DraftedAnswer(category, temperature, num_prompt_tokens, tuple(range(101)), False, drafts=drafts)
    return [answer, answer]


def test_a_sound_drafter_is_under_no_suspicion() -> None:
    """Shares of the head that comes with Pilotfish, in the kinds of prompts that suit it best and worst."""
    sound = [
        *answers(0.78, category="math"),
        *answers(0.44, category="translation"),
        *answers(0.6, category="chat"),
        *answers(0.55, temperature=0.7),
        *answers(0.58, num_prompt_tokens=500),
    ]
    assert not list(suspicions(sound, 300))


def shaped(share_right: float) -> list[DraftedAnswer]:
    """Answers a third of whose tokens penalties have changed, of whose drafts this share is accepted; of others 0.6."""
    tokens = range(101)
    right = [place % 100 < 100 * share_right if place % 3 == 0 else place % 10 < 6 for place in tokens]
    drafts = {place: RehearsedDraft((place if right[place] else -1,)) for place in tokens[1:]}
    places = tuple(place % 3 == 0 for place in tokens)
    return [DraftedAnswer("chat", 0.0, 9, tuple(tokens), False, places, drafts)] * 4


def test_sampling_that_drafts_cannot_see_is_named() -> None:
    (finding,) = suspicions(shaped(0.05), 0)
    assert finding.cause == "sampling that drafts cannot see (penalties, grammar)"
    assert "33% of the places; 3% of first drafts are accepted there, 61% elsewhere" in finding.evidence
    assert not list(suspicions(shaped(0.4), 0))  # a drafter that sees them finds such tokens harder, too


@pytest.mark.parametrize(
    ("fault", "cause", "evidence"),
    [
        (answers(0.1, category="finnish"), "does not know finnish", "10% of first drafts are accepted there, 60% else"),
        (
            answers(0.3, temperature=1.4),
            "temperature is high",
            "30% of first drafts are accepted at temperature 1.4, 60%",
        ),
        (
            answers(0.0, num_prompt_tokens=300),
            "longer than the drafter's context",
            "beyond 200 tokens 0% .*, 60% before",
        ),
    ],
)
def test_each_fault_is_named_with_its_evidence(fault: list[DraftedAnswer], cause: str, evidence: str) -> None:
    (finding,) = suspicions([*answers(0.6), *answers(0.6), *fault], 200)
    assert cause in finding.cause
    assert re.search(evidence, finding.evidence)
    assert finding.advice


def test_what_comes_of_a_short_context_is_not_named_as_well() -> None:
    long = answers(0.0, category="summaries", num_prompt_tokens=300)
    (finding,) = suspicions([*answers(0.6), *long], 200)
    assert "longer than the drafter's context" in finding.cause


def test_a_drafter_of_another_model() -> None:
    (finding,) = suspicions([*answers(0.02), *answers(0.09, category="chat")], 0)
    assert "hardly ever agrees" in finding.cause


def test_a_weak_drafter_of_this_model_is_none_of_another() -> None:
    """Right a fifth of the time."""
    assert not list(suspicions([*answers(0.2), *answers(0.2, category="code")], 0))


def test_few_places_say_nothing() -> None:
    few = DraftedAnswer("finnish", 0.0, 3, tuple(range(20)), False, {})
    assert not list(suspicions([*answers(0.6), few], 0))
    assert not list(suspicions([few], 0))
    assert (least_gain(10_000), least_gain(100)) == (0.05, 0.1)
