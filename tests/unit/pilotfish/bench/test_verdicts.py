"""What the figures of a category mean."""

import pytest

from pilotfish.bench.arms import PLAIN, Variant
from pilotfish.bench.grading import Accuracy, accuracy_of
from pilotfish.bench.metrics import ALL, Row
from pilotfish.bench.verdicts import ArmVerdict, arm_verdicts_of, verdicts_of

VARIANTS = {
    variant.name: variant for variant in (Variant(), Variant("ngram", 3), Variant("model", 5), Variant("model"))
}


def row(
    arm: str,
    speed_up: float | None,
    *,
    median: float | None = None,
    category: str = "qa",
    same: int = 4,
    bound: float | None = None,
    accuracy: Accuracy | None = None,
) -> Row:
    return Row(
        arm=arm,
        category=category,
        num_answers=4,
        num_timed=4 if speed_up is not None else 0,
        num_tokens=400,
        tokens_per_s=1.0,
        decode_tokens_per_s=1.0,
        speed_up=speed_up,
        speed_up_median=median if median is not None else speed_up,
        speed_up_bound=bound,
        total_speed_up=speed_up,
        ttft_ms=1.0,
        total_ms=1.0,
        itl_p50_ms=1.0,
        itl_p99_ms=1.0,
        drafts=None,
        accuracy=accuracy,
        num_identical=same,
    )


def verdict(*rows: Row, must_be_identical: bool = True) -> ArmVerdict:
    (found,) = verdicts_of([row(PLAIN, 1.0), *rows], VARIANTS, must_be_identical=must_be_identical)
    return found


def test_the_fastest_fixed_length_is_what_to_use() -> None:
    found = verdict(row("ngram K=3", 1.3), row("model K=5", 1.8), row("model auto", 1.9))
    assert found.conclusion == "pays"
    assert (found.proposer, found.num_speculative_tokens) == ("model", 5)
    assert "qa: speculation earns its keep, 1.80x with model K=5" in found.sentence


@pytest.mark.parametrize(
    ("speed_up", "median", "conclusion", "proposer"),
    [
        (1.06, 1.06, "pays", "ngram"),
        (1.04, 1.04, "no difference", ""),
        (0.96, 0.97, "no difference", ""),
        (0.94, 0.94, "does not pay", ""),
        (1.50, 0.90, "unclear", "ngram"),
        (1.06, 1.01, "no difference", ""),
    ],
)
def test_sum_and_median_must_agree(speed_up: float, median: float, conclusion: str, proposer: str) -> None:
    found = verdict(row("ngram K=3", speed_up, median=median))
    assert (found.conclusion, found.proposer) == (conclusion, proposer)


def test_no_speed_excuses_other_output() -> None:
    found = verdict(row("ngram K=3", 3.0), row("model K=5", 1.2, same=3))
    assert found.conclusion == "differs"
    assert found.proposer == ""
    assert "the output of model K=5 differs" in found.sentence


def test_a_speed_up_that_drafts_cannot_explain_is_noise() -> None:
    found = verdict(row("ngram K=3", 2.2, bound=1.0), row("model K=5", 1.5, bound=2.4))
    assert (found.conclusion, found.arm) == ("pays", "model K=5")
    found = verdict(row("ngram K=3", 2.2, bound=1.0))
    assert (found.conclusion, found.proposer) == ("too noisy", "")
    assert "2.20x with ngram K=3 by the clock but 1.00 tokens a step" in found.sentence


def test_there_is_one_for_each_category_and_the_last_is_over_all() -> None:
    rows = [row(arm, 1.2, category=name) for arm in (PLAIN, "ngram K=3") for name in ("qa", "math", ALL)]
    found = verdicts_of(rows, VARIANTS, must_be_identical=True)
    assert [each.category for each in found] == ["qa", "math", ALL]
    assert found[-1].sentence.startswith("Over all categories: ")


def test_answers_too_short_to_time_tell_no_speed_but_may_differ() -> None:
    found = verdict(row("ngram K=3", None), row("model auto", None))
    assert (found.conclusion, found.proposer, found.speed_up) == ("too short", "", None)
    assert "no answer of 8 tokens or more" in found.sentence
    assert verdict(row("ngram K=3", None, same=3)).conclusion == "differs"
    assert verdict(row("ngram K=3", None), row("model K=5", 1.2)).arm == "model K=5"


def test_speed_that_costs_right_answers_by_more_than_chance_is_named() -> None:
    worse = accuracy_of([0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0])
    found = verdict(row("ngram K=3", 2.0, accuracy=worse), must_be_identical=False)
    assert (found.conclusion, found.proposer) == ("costs accuracy", "")
    assert "2.00x with ngram K=3, but 25% right, 100% plainly" in found.sentence
    by_chance = accuracy_of([0.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0])
    assert verdict(row("ngram K=3", 2.0, accuracy=by_chance), must_be_identical=False).conclusion == "pays"


def test_every_arm_that_drafts_is_judged_over_all_the_lossy_ones_by_their_speed() -> None:
    variants = VARIANTS | {"model K=5 step": Variant("model", 5, "step")}
    speeds = {PLAIN: 1.0, "ngram K=3": 0.8, "model K=5": 1.4, "model auto": 1.0, "model K=5 step": 2.0}
    rows = [
        row(arm, speed, category=name, same=3 if arm in ("model auto", "model K=5 step") else 4)
        for arm, speed in speeds.items()
        for name in ("qa", ALL)
    ]
    found = arm_verdicts_of(rows, variants, must_be_identical=True)
    assert {each.category for each in found} == {ALL}
    assert {each.arm: each.conclusion for each in found} == {
        "ngram K=3": "does not pay",
        "model K=5": "pays",
        "model auto": "differs",
        "model K=5 step": "pays",
    }
