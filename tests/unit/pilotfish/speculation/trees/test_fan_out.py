"""Which outcomes are drafted for, and in which order."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.speculation.trees.fan_out import AssumedOutcome, likeliest_outcomes, rivals, split_budget
from pilotfish.speculation.trees.growth import Candidate


def candidates(*probs: float) -> list[Candidate]:
    return [Candidate(10 + rank, math.log(prob)) for rank, prob in enumerate(probs)]


def test_rivals_share_what_the_draft_leaves() -> None:
    left = rivals(candidates(0.6, 0.2, 0.1), 10)
    assert [rival.token_id for rival in left] == [11, 12]
    assert [math.exp(rival.log_prob) for rival in left] == pytest.approx([0.5, 0.25])


@pytest.mark.parametrize("acceptance", [(0.5,), (0.5, 0.5), (0.5, 0.5, 0.9)])
def test_the_likeliest_outcomes_come_first(acceptance: tuple[float, ...]) -> None:
    at_positions = [candidates(0.5, 0.25), candidates(0.5), candidates(0.8, 0.1)]
    outcomes = likeliest_outcomes(acceptance, at_positions, 4)
    # 0 accepted: 0.5 * (0.5, 0.25); 1: 0.25 * 0.5; both: 0.25 * (0.8, 0.1).
    assert outcomes == [
        AssumedOutcome(0, 10),
        AssumedOutcome(2, 10),
        AssumedOutcome(0, 11),
        AssumedOutcome(1, 10),
    ]


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=6),
    st.integers(1, 6),
    st.integers(0, 20),
)
def test_no_outcome_twice_and_none_too_many(acceptance: list[float], num_drafts: int, max_outcomes: int) -> None:
    outcomes = likeliest_outcomes(acceptance, [candidates(0.5, 0.3, 0.1)] * (num_drafts + 1), max_outcomes)
    assert len(set(outcomes)) == len(outcomes) == min(max_outcomes, 3 * (num_drafts + 1))
    assert all(0 <= outcome.num_accepted_tokens <= num_drafts for outcome in outcomes)


@pytest.mark.parametrize(
    ("max_tokens", "num_draft_tokens", "split"), [(60, 5, (12, 5)), (7, 5, (1, 5)), (3, 5, (1, 3)), (8, 1, (8, 1))]
)
def test_drafts_are_whole_as_far_as_the_budget_lasts(
    max_tokens: int, num_draft_tokens: int, split: tuple[int, int]
) -> None:
    assert split_budget(max_tokens, num_draft_tokens) == split
