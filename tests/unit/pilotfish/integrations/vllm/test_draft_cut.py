"""What of each row's draft is worth verifying."""

from __future__ import annotations

import pytest

from pilotfish.integrations.vllm.draft_cut import Answer, DraftCut

K = 4
DEAR, CHEAP = 0.1, 0.0


@pytest.fixture
def cut() -> DraftCut:
    return DraftCut(K)


def learn(cut: DraftCut, row_id: int, num_right: int, times: int = 30) -> None:
    for _ in range(times):
        cut.learn(Answer(row_id, K), K, num_right)


def test_where_verifying_is_free_all_is_verified(cut) -> None:
    learn(cut, 1, 0)
    assert cut.lengths([Answer(1, K), Answer(2, 3)], 2, CHEAP) == [K, 3]


def test_what_was_vain_again_and_again_is_not_verified_where_it_is_dear(cut) -> None:
    learn(cut, 1, 0)
    assert cut.lengths([Answer(1, K)], 8, DEAR) == [0]


def test_a_row_whose_drafts_hold_keeps_them_beside_one_whose_do_not(cut) -> None:
    for _ in range(30):
        learn(cut, 1, K, 1)
        learn(cut, 2, 0, 1)
    assert cut.lengths([Answer(2, K), Answer(1, K)], 8, DEAR) == [0, K]


def test_a_draft_ends_where_its_chances_do(cut) -> None:
    learn(cut, 1, 2)
    assert cut.lengths([Answer(1, K)], 2, DEAR) == [2]


def test_the_more_rows_share_a_step_the_less_is_worth_its_time(cut) -> None:
    for _ in range(20):
        learn(cut, 1, 0, 1)
        learn(cut, 1, K, 1)
    lengths = [cut.lengths([Answer(9, K)], num_rows, DEAR)[0] for num_rows in (1, 8)]
    assert lengths[0] > lengths[1]


def test_a_token_that_was_not_verified_is_learnt_from_as_well(cut) -> None:
    learn(cut, 1, 0)
    for _ in range(20):
        cut.learn(Answer(1, K), 1, 1)  # vLLM said it by itself
    assert cut.lengths([Answer(1, K)], 2, DEAR)[0] >= 1


def test_a_row_that_has_ended_is_forgotten(cut) -> None:
    for _ in range(30):
        learn(cut, 1, K, 1)
        learn(cut, 2, 0, 1)
    cut.keep([2])
    # Row 1 is any row now, and what is known of any row is little.
    assert cut.lengths([Answer(1, K)], 8, 0.3) == cut.lengths([Answer(7, K)], 8, 0.3)


def test_an_empty_answer_has_nothing_to_verify(cut) -> None:
    cut.learn(Answer(1, 0), 0, 0)
    assert cut.lengths([Answer(1, 0)], 1, CHEAP) == [0]
