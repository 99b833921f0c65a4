"""What it takes to be promoted."""

import random

import pytest

from pilotfish.training.online.examination import MAX_LOSS, MIN_TEXTS, OTHER, Pair, compare, examine


def pairs(kind: str, gain: float, *, count: int = 40, noise: float = 0.1, before: float = 2.0) -> list[Pair]:
    dice = random.Random(f"{kind}{gain}")
    gains = [dice.gauss(0, noise) for _ in range(count)]
    mean = sum(gains) / count
    return [Pair(kind, before, before + gain + each - mean) for each in gains]


def test_better_by_more_than_the_error_is_better() -> None:
    verdict = examine(pairs("new", 0.3), {"new"})
    assert verdict.is_better
    assert verdict.score == compare(pairs("new", 0.3))
    assert verdict.reason.startswith("2.00 to 2.30 tokens a round (+0.30 +- 0.0")


def test_better_by_less_than_the_error_is_not() -> None:
    verdict = examine(pairs("new", 0.1, noise=0.5), {"new"})
    assert not verdict.is_better
    assert verdict.reason.startswith("not better by more than the error")


@pytest.mark.parametrize(("loss", "is_better"), [(0.9 * MAX_LOSS, True), (1.1 * MAX_LOSS, False)])
def test_a_kind_that_was_not_learned_from_may_lose_a_little(loss: float, is_better: bool) -> None:
    verdict = examine([*pairs("new", 0.3), *pairs("old", -2 * loss)], {"new"})
    assert verdict.is_better is is_better
    assert verdict.kinds.keys() == {"new", "old"}
    assert verdict.score is not None
    assert verdict.score.num_texts == 40  # of what it learned from
    if not is_better:
        assert verdict.reason == "worse by 2.2% on kind old"


def test_a_loss_within_its_error_is_chance() -> None:
    for noise, is_better in ((0.1, False), (0.5, True)):
        assert examine([*pairs("new", 0.3), *pairs("old", -0.1, noise=noise)], {"new"}).is_better is is_better


def test_small_losses_do_not_add_up() -> None:
    learned, lost = pairs("new", 0.3), pairs("old", -0.02)
    assert examine([*learned, *lost], {"new"}, [*learned, *lost]).is_better
    verdict = examine([*learned, *lost], {"new"}, [*learned, *pairs("old", -0.05)])
    assert not verdict.is_better
    assert verdict.reason == "worse by 2.5% than the configured head on kind old"


def test_gains_elsewhere_do_not_count() -> None:
    assert not examine([*pairs("new", 0.0), *pairs("old", 0.5)], {"new"}).is_better


def test_small_kinds_count_together() -> None:
    small = [pair for index in range(10) for pair in pairs(f"small {index}", 0.3, count=4)]
    verdict = examine(small, {f"small {index}" for index in range(10)})
    assert verdict.is_better
    assert verdict.kinds.keys() == {OTHER}


def test_a_kind_that_has_just_begun_counts_for_what_is_gained() -> None:
    verdict = examine([*pairs("old", 0.0, count=14), *pairs("new", 1.0, count=5)], {"old", "new"})
    assert verdict.is_better
    assert verdict.kinds.keys() == {"old"}


def test_too_few_texts_prove_nothing() -> None:
    verdict = examine(pairs("new", 1.0, count=MIN_TEXTS - 1), {"new"})
    assert (verdict.is_better, verdict.score) == (False, None)
    assert "fewer than 8 texts" in verdict.reason


def test_the_error_is_twice_the_standard_error() -> None:
    score = compare([Pair("a", 2.0, 2.1), Pair("a", 2.0, 2.3), Pair("a", 1.0, 1.2)])
    assert score.error == pytest.approx(2 * 0.1 / 3**0.5)
    assert (score.before, score.after) == (pytest.approx(5 / 3), pytest.approx(5.6 / 3))
