"""Rows from samples whose figures are known by hand."""

import pytest

from pilotfish.bench.measurement import Arrival, Measurement
from pilotfish.bench.metrics import ALL, Row, rows_of
from pilotfish.bench.runner import Sample
from pilotfish.client.answer import Summary
from tests.support.summaries import make_summary

PLAIN, FAST = "plain", "fast"


def measured(*arrivals: tuple[float, int], first_token_id: int = 1, summary: Summary | None = None) -> Measurement:
    """Token ids count up from first_token_id."""
    num_tokens = sum(num for _, num in arrivals)
    return Measurement(
        token_ids=tuple(range(first_token_id, first_token_id + num_tokens)),
        arrivals=tuple(Arrival(*arrival) for arrival in arrivals),
        summary=summary,
    )


def rows(samples: list[Sample]) -> dict[tuple[str, str], Row]:
    return {(row.arm, row.category): row for row in rows_of(samples, PLAIN)}


def test_rates_are_of_sums_and_the_median_is_of_ratios() -> None:
    samples = [
        Sample(PLAIN, "qa", 0, 0, measured((1.0, 1), (3.0, 10), (5.0, 10))),  # 20 tokens in 4 s after the first
        Sample(FAST, "qa", 0, 0, measured((1.0, 1), (2.0, 20))),  # 20 in 1 s
        Sample(PLAIN, "qa", 1, 0, measured((1.0, 1), (2.0, 10))),  # 10 in 1 s
        Sample(FAST, "qa", 1, 0, measured((1.0, 1), (1.5, 10))),  # 10 in 0.5 s
    ]
    found = rows(samples)[FAST, "qa"]
    assert found.decode_tokens_per_s == pytest.approx(30 / 1.5)
    assert found.speed_up == pytest.approx((30 / 1.5) / (30 / 5))
    assert found.speed_up_median == pytest.approx((4.0 + 2.0) / 2)
    assert found.tokens_per_s == pytest.approx(32 / 3.5)
    assert found.total_speed_up == pytest.approx((32 / 3.5) / (32 / 7))
    assert found.ttft_ms == pytest.approx(1000)
    assert found.total_ms == pytest.approx(1750)
    assert found.is_identical


def test_right_answers_are_counted_by_question_against_the_same_questions_of_the_baseline() -> None:
    grades = {  # by arm and question: one for each turn
        (PLAIN, 0): (True, True),
        (FAST, 0): (True, False),
        (PLAIN, 1): (True, True),
        (FAST, 1): (True, True),
        (PLAIN, 2): (None, None),
        (FAST, 2): (None, None),
    }
    samples = [
        Sample(arm, "math", question, turn, measured((1.0, 1)), is_right)
        for (arm, question), turns in grades.items()
        for turn, is_right in enumerate(turns)
    ]
    accuracy = rows(samples)[FAST, "math"].accuracy
    assert accuracy is not None
    assert (accuracy.num_questions, accuracy.right, accuracy.difference) == (2, 0.75, -0.25)
    assert rows([sample for sample in samples if sample.prompt_index == 2])[FAST, "math"].accuracy is None


def test_over_all_categories_the_speed_up_is_of_all_tokens_and_all_their_time() -> None:
    samples = [
        Sample(PLAIN, "long", 0, 0, measured((1.0, 1), (61.0, 90))),
        Sample(FAST, "long", 0, 0, measured((1.0, 1), (31.0, 90))),
        Sample(PLAIN, "short", 1, 0, measured((1.0, 1), (11.0, 10))),
        Sample(FAST, "short", 1, 0, measured((1.0, 1), (41.0, 10))),
    ]
    found = rows(samples)[FAST, ALL]
    assert found.speed_up == pytest.approx(70 / 70)
    assert found.speed_up_median == pytest.approx((2 + 1 / 4) / 2)
    assert (found.num_timed, found.num_answers) == (2, 2)


def test_an_answer_of_a_few_tokens_has_no_decoding_speed_and_weighs_nothing() -> None:
    samples = [
        Sample(PLAIN, "yes or no", 0, 0, measured((1.0, 1), (1.01, 1))),
        Sample(FAST, "yes or no", 0, 0, measured((1.0, 1), (1.06, 1))),  # 0.17x
        Sample(PLAIN, "qa", 1, 0, measured((1.0, 1), (3.0, 20))),
        Sample(FAST, "qa", 1, 0, measured((1.0, 1), (2.0, 20))),
    ]
    found = rows(samples)
    short = found[FAST, "yes or no"]
    assert (short.speed_up, short.speed_up_median, short.num_timed, short.num_answers) == (None, None, 0, 1)
    assert (found[FAST, ALL].num_timed, found[FAST, ALL].num_answers) == (1, 2)
    assert found[FAST, ALL].speed_up == found[FAST, ALL].speed_up_median == pytest.approx(2.0)


def test_every_answer_must_equal_plain_decodings_first() -> None:
    samples = [
        Sample(PLAIN, "qa", 0, 0, measured((1.0, 2))),
        Sample(FAST, "qa", 0, 0, measured((1.0, 2))),
        Sample(PLAIN, "qa", 0, 1, measured((1.0, 2), first_token_id=9)),
        Sample(FAST, "qa", 0, 1, measured((1.0, 2), first_token_id=9)),
    ]
    found = rows(samples)
    assert found[FAST, "qa"].num_identical == found[PLAIN, "qa"].num_identical == 1
    assert not found[FAST, "qa"].is_identical


def test_an_arm_is_held_against_the_baseline_of_its_own_turns() -> None:
    samples = [
        Sample(PLAIN, "qa", 0, 0, measured((1.0, 1), (2.0, 9))),
        Sample(PLAIN, "qa", 0, 1, measured((1.0, 1), (9.0, 9))),  # a slow spell
        Sample(FAST, "qa", 0, 1, measured((1.0, 1), (5.0, 9))),
    ]
    found = rows(samples)[FAST, "qa"]
    assert found.speed_up == found.speed_up_median == pytest.approx(8 / 4)


def test_drafts_are_summed_over_answers() -> None:
    first = make_summary(
        num_rounds=1, num_draft_tokens=3, num_accepted_tokens=3, num_plain_tokens=1, acceptance_per_position=(1, 1, 1)
    )
    second = make_summary(
        num_rounds=3, num_draft_tokens=5, num_accepted_tokens=1, num_missed_deadlines=2, acceptance_per_position=(0.2,)
    )
    samples = [
        Sample(PLAIN, "qa", 0, 0, measured((1.0, 5), summary=first)),
        Sample(PLAIN, "qa", 1, 0, measured((1.0, 4), summary=second)),
    ]
    found = rows(samples)[PLAIN, "qa"].drafts
    assert found is not None
    assert found.acceptance_rate == 4 / 8
    assert found.mean_acceptance_length == 1 + 4 / 4
    assert found.tokens_per_step == rows(samples)[PLAIN, "qa"].speed_up_bound == 9 / 5
    assert (found.num_draft_tokens, found.num_accepted_tokens, found.num_wasted_tokens) == (8, 4, 4)
    assert found.num_missed_deadlines == 2
    assert found.acceptance_per_position == pytest.approx(((1 * 1 + 3 * 0.2) / 4, 1, 1))
