"""Rounds in virtual time, against rounds counted by hand."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pilotfish.emulation.profiles.step_cost import MeasuredCost
from pilotfish.examine.acceptance import replay
from pilotfish.examine.costs import MeasuredRoundCosts
from pilotfish.examine.drafted_answer import DraftedAnswer, RehearsedDraft
from pilotfish.examine.drafted_tree import DraftedTree
from pilotfish.examine.virtual_target import Way, play
from pilotfish.step_table import StepTable

MakeAnswer = Callable[..., DraftedAnswer]
MS = 1_000_000
FREE = MeasuredRoundCosts(StepTable((1, 64), (10 * MS, 10 * MS)), (1, 4), (0.0, 0.0), (0.0, 0.0), 64, 16)
"""Rows cost nothing, nor does the drafter."""
DEAR = replace(FREE, steps=StepTable((1, 2, 64), (10 * MS, 20 * MS, 640 * MS)))
"""A row costs as much as a step."""


def certain(answer: DraftedAnswer, confidence: float = 0.9) -> DraftedAnswer:
    """With drafts that the drafter is equally sure of."""
    sure = tuple(confidence ** (place + 1) for place in range(5))
    return replace(answer, drafts={at: replace(each, confidences=sure) for at, each in answer.drafts.items()})


@pytest.fixture
def answers(make_answer: MakeAnswer) -> list[DraftedAnswer]:
    return [certain(make_answer(30, [(7 * at + seed) % 6 for at in range(30)], is_whole=True)) for seed in range(3)]


def test_without_drafts_a_step_is_a_token_for_each_request(answers: list[DraftedAnswer]) -> None:
    played = play(answers, FREE, 3, Way(0))
    assert (played.num_tokens, played.num_drafts) == (played.num_rounds, 0)
    assert played.tokens_per_s == pytest.approx(300)


@pytest.mark.parametrize("load", [1, 2])
@pytest.mark.parametrize("length", [1, 3, 5])
def test_where_rows_are_free_all_drafts_are_verified(answers: list[DraftedAnswer], load: int, length: int) -> None:
    played = play(answers, replace(FREE, grows=False), load, Way(length))
    tokens, drafts = replay(answers, length)
    assert played.num_drafts / played.num_rounds == pytest.approx(drafts, rel=0.1)
    assert played.tokens_per_round == pytest.approx(tokens, rel=0.1)
    assert played.tokens_per_s == pytest.approx(100 * load * played.tokens_per_round)


def test_dear_rows_are_left_out(answers: list[DraftedAnswer]) -> None:
    doubtful = [certain(answer, 0.3) for answer in answers]
    assert play(doubtful, FREE, 1, Way(5)).num_drafts > 10 * play(doubtful, DEAR, 1, Way(5)).num_drafts
    assert play(doubtful, DEAR, 1, Way(5)).tokens_per_s > 95


def test_passes_that_would_not_pay_are_not_made(answers: list[DraftedAnswer]) -> None:
    """Nothing is known at first: some are made."""
    slow = replace(FREE, further_s=(0.05, 0.05))
    assert play(answers, slow, 1, Way(5)).num_drafts < 1.5 * play(answers, FREE, 1, Way(1)).num_drafts


def test_steps_take_what_they_take_with_so_many_sequences(answers: list[DraftedAnswer]) -> None:
    """What a target believes of its rows decides what it verifies, not what that takes."""
    steps = MeasuredCost(num_sequences=(1, 4), num_tokens=(1, 64), step_times_s=((0.01, 0.01), (0.03, 0.03)))
    believed, real = (play(answers, each, 4, Way(3)) for each in (FREE, replace(FREE, verification=steps)))
    assert (real.num_tokens, real.num_drafts) == (believed.num_tokens, believed.num_drafts)
    assert real.time_s == pytest.approx(3 * believed.time_s)


def test_a_tree_takes_another_branch() -> None:
    """The chain is always wrong, its sibling always right."""
    drafts = {
        place: RehearsedDraft((-1,), (0.6,), DraftedTree((-1, place, place + 1), (-1, -1, 1), (-0.5, -0.9, -1.1)))
        for place in range(1, 40)
    }
    answer = DraftedAnswer("chat", 0.0, 3, tuple(range(40)), True, drafts=drafts)
    assert play([answer], FREE, 1, Way(2)).tokens_per_round == 1.0
    trees = play([answer], FREE, 1, Way(2, 16))
    assert trees.tokens_per_round == pytest.approx(3.0, rel=0.05)
    assert trees.num_drafts == 3 * trees.num_rounds


def test_what_is_not_known_is_not_played(make_answer: MakeAnswer) -> None:
    cut = make_answer(4, [5] * 4)
    assert play([cut], FREE, 1, Way(5)).num_rounds == 0
