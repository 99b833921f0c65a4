import pytest

from pilotfish.engine.core.draft_costs import DraftCosts, Thresholds, num_free_nodes

STEP_S, ROW_S = 0.010, 0.0002


def step_s(num_rows: float) -> float:
    return STEP_S + (num_rows - 1) * ROW_S


def tiles(num_rows: float) -> float:
    """A step of a kernel that takes 12 rows in the time of one."""
    return STEP_S * -(-num_rows // 12)


def costs(*, round_s: float, tokens: int = 2) -> DraftCosts:
    subject = DraftCosts()
    for _ in range(300):
        subject.add(tokens, STEP_S, 3, 3 * round_s)
    return subject


def test_nothing_measured_nothing_changed() -> None:
    subject = DraftCosts()
    assert subject.thresholds(step_s, 1, 5) == Thresholds()
    subject.add(1, 0.01, 0, 0.0)  # no round yet
    assert subject.thresholds(step_s, 1, 5) == Thresholds()


def test_a_token_must_be_worth_its_row_and_its_share_of_the_round() -> None:
    tokens_per_s = 2 / (STEP_S + 3 * 0.001)
    alone = costs(round_s=0.001).thresholds(step_s, 1, 5)
    assert alone.round == pytest.approx((0.001 + ROW_S) * tokens_per_s)
    assert alone.node == pytest.approx(ROW_S * tokens_per_s)
    among_four = costs(round_s=0.001).thresholds(step_s, 4, 5)
    assert among_four.round == pytest.approx((0.001 / 4 + ROW_S) * tokens_per_s)


def test_there_is_always_a_threshold_between_all_and_nothing() -> None:
    free = costs(round_s=0.0).thresholds(lambda _: STEP_S, 1, 5)
    assert (free.round, free.node) == (0.02, 0.005)
    dear = costs(round_s=1.0, tokens=64).thresholds(lambda num_rows: num_rows, 1, 5)
    assert (dear.round, dear.node) == (0.9, 0.5)


@pytest.mark.parametrize(
    ("num_sequences", "num_draft_tokens", "expected"), [(1, 5, 11), (2, 3, 5), (4, 2, 2), (4, 3, 5), (1, 40, 47)]
)
def test_trees_fill_the_tile_that_chains_began(num_sequences: int, num_draft_tokens: int, expected: int) -> None:
    assert num_free_nodes(tiles, num_sequences, num_draft_tokens, 63) == expected
    assert num_free_nodes(tiles, num_sequences, num_draft_tokens, 4) == min(expected, max(4, num_draft_tokens))
