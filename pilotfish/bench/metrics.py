"""Turns samples into one row for each arm and category."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from pilotfish.bench.grading import Accuracy, accuracy_of
from pilotfish.bench.measurement import Measurement
from pilotfish.bench.runner import Sample
from pilotfish.speculation.statistics import SpeculationStats


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds; pNN: NN % of the values are no larger."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def percentiles_ms(values_s: Iterable[float | None]) -> Percentiles | None:
    """Percentiles of those values that are known; None: none is."""
    values = sorted(value * 1e3 for value in values_s if value is not None)
    if not values:
        return None
    shares = {name: nearest_rank(values, int(name[1:]) / 100) for name in ("p50", "p90", "p95", "p99")}
    return Percentiles(mean=statistics.fmean(values), max=values[-1], **shares)


def nearest_rank(sorted_values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of the values (at least one, ascending) do not exceed."""
    # Rounded first: 0.99 * 100 is a little above 99.
    rank = -int(-round(share * len(sorted_values), 9) // 1)
    return sorted_values[max(rank, 1) - 1]


class DraftMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over answers and their ratios; None where there is nothing to divide by."""

    acceptance_rate: float | None
    """Accepted over drafted tokens."""
    mean_acceptance_length: float | None
    """1 + accepted tokens over speculative rounds."""
    tokens_per_step: float | None
    """Output tokens over steps of the target (speculative rounds, plain steps, and steps of reasoning that it judged):
    free of any clock."""
    num_draft_tokens: int
    num_accepted_tokens: int
    num_wasted_tokens: int
    """Drafted, not accepted."""
    num_missed_deadlines: int
    acceptance_per_position: tuple[float, ...]
    """Weighted by each answer's rounds."""


def draft_metrics(answers: Sequence[Measurement]) -> DraftMetrics | None:
    """The answers' draft metrics together; None when one of the answers does not report them."""
    counts = [each.summary.speculation for each in answers if each.summary is not None]
    if len(counts) < len(answers):
        return None
    num_rounds = sum(each.num_rounds for each in counts)
    num_drafted = sum(each.num_draft_tokens for each in counts)
    num_accepted = sum(each.num_accepted_tokens for each in counts)
    num_steps = num_rounds + sum(each.num_plain_tokens + each.num_steps for each in counts)
    return DraftMetrics(
        acceptance_rate=num_accepted / num_drafted if num_drafted else None,
        mean_acceptance_length=1 + num_accepted / num_rounds if num_rounds else None,
        tokens_per_step=sum(each.num_tokens for each in answers) / num_steps if num_steps else None,
        num_draft_tokens=num_drafted,
        num_accepted_tokens=num_accepted,
        num_wasted_tokens=num_drafted - num_accepted,
        num_missed_deadlines=sum(each.num_missed_deadlines for each in counts),
        acceptance_per_position=_per_position(counts),
    )


def _per_position(counts: Sequence[SpeculationStats]) -> tuple[float, ...]:
    length = max((len(each.acceptance_per_position) for each in counts), default=0)
    totals, weights = [0.0] * length, [0] * length
    for each in counts:
        for position, rate in enumerate(each.acceptance_per_position):
            totals[position] += rate * each.num_rounds
            weights[position] += each.num_rounds
    return tuple(total / weight for total, weight in zip(totals, weights, strict=True) if weight)


ALL = "all"
"""The row over all categories."""

MIN_TIMED_TOKENS = 8
"""Least tokens of a timed answer: decoding a shorter one takes next to no time, so its speed is noise."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One arm in one category. None: not known, or nothing to divide by."""

    arm: str
    category: str
    num_answers: int
    num_timed: int
    """Answers of at least MIN_TIMED_TOKENS, as the baseline's to the same prompts are: speed-ups are theirs."""
    num_tokens: int
    tokens_per_s: float
    """Output tokens over whole answers, prefill included: the figure to compare with other systems."""
    decode_tokens_per_s: float | None
    """Tokens after the first arrival over the time after it, of all timed answers together."""
    speed_up: float | None
    """Ratio of decode_tokens_per_s to the baseline's."""
    speed_up_median: float | None
    """Median over timed answers of the ratio to the baseline's answer to the same prompt in the same turn."""
    speed_up_bound: float | None
    """Output tokens per step of the target: a step is no cheaper with drafts in it, so what a speed-up is above
    this is the machine's noise."""
    total_speed_up: float | None
    """Ratio of tokens_per_s to the baseline's."""
    ttft_ms: float
    """Median time to first token."""
    total_ms: float
    """Median time to the last token."""
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    """Gaps between arrivals; tokens that come together have one gap."""
    drafts: DraftMetrics | None
    """Draft metrics; None: the contestant does not report them."""
    accuracy: Accuracy | None = None
    """Right answers; None: no prompt has a reference that tells."""
    num_identical: int
    """Answers equal, token by token, to the baseline's first answer to the same prompt."""

    @property
    def is_identical(self) -> bool:
        return self.num_identical == self.num_answers


def rows_of(samples: Sequence[Sample], baseline: str) -> list[Row]:
    """Arms in the order of their first sample, categories likewise, then ALL where there are several."""
    arms = list(dict.fromkeys([baseline, *(sample.arm for sample in samples)]))
    categories = list(dict.fromkeys(sample.category for sample in samples))
    chosen: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        chosen[sample.arm, sample.category].append(sample)
    rows = []
    for arm in arms:
        rows += [_row(chosen[arm, name], chosen[baseline, name], name) for name in categories]
        if len(categories) > 1:
            ours = [sample for name in categories for sample in chosen[arm, name]]
            theirs = [sample for name in categories for sample in chosen[baseline, name]]
            rows.append(_row(ours, theirs, ALL))
    return rows


def _row(samples: Sequence[Sample], baseline: Sequence[Sample], category: str) -> Row:
    measurements = [sample.measurement for sample in samples]
    by_turn = {(sample.prompt_index, sample.turn): sample.measurement for sample in baseline}
    plain = [by_turn[sample.prompt_index, sample.turn] for sample in samples]
    pairs = [
        pair
        for pair in zip(measurements, plain, strict=True)
        if min(each.num_tokens for each in pair) >= MIN_TIMED_TOKENS
    ]
    first = {sample.prompt_index: sample.measurement for sample in reversed(baseline)}
    gaps = sorted(gap for each in measurements for gap in each.gaps_s)
    decode, plain_decode = _decode_rate(ours for ours, _ in pairs), _decode_rate(theirs for _, theirs in pairs)
    total, plain_total = _total_rate(measurements), _total_rate(plain)
    drafts = draft_metrics(measurements)
    return Row(
        arm=samples[0].arm,
        category=category,
        num_answers=len(samples),
        num_timed=len(pairs),
        num_tokens=sum(each.num_tokens for each in measurements),
        tokens_per_s=total or 0.0,
        decode_tokens_per_s=decode,
        speed_up=_ratio(decode, plain_decode),
        speed_up_median=_median(_ratio(_decode_rate([a]), _decode_rate([b])) for a, b in pairs),
        speed_up_bound=drafts.tokens_per_step if drafts is not None else None,
        total_speed_up=_ratio(total, plain_total),
        ttft_ms=statistics.median(each.time_to_first_token_s for each in measurements) * 1e3,
        total_ms=statistics.median(each.total_s for each in measurements) * 1e3,
        itl_p50_ms=_quantile_ms(gaps, 0.5),
        itl_p99_ms=_quantile_ms(gaps, 0.99),
        num_identical=sum(sample.measurement.token_ids == first[sample.prompt_index].token_ids for sample in samples),
        drafts=drafts,
        accuracy=_accuracy(samples, baseline),
    )


def _accuracy(samples: Sequence[Sample], baseline: Sequence[Sample]) -> Accuracy | None:
    ours, theirs = _right_by_question(samples), _right_by_question(baseline)
    questions = [question for question in ours if question in theirs]
    return accuracy_of([ours[question] for question in questions], [theirs[question] for question in questions])


def _right_by_question(samples: Sequence[Sample]) -> dict[int, float]:
    """Share of right answers over the turns of each question."""
    grades: dict[int, list[bool]] = defaultdict(list)
    for sample in samples:
        if sample.is_right is not None:
            grades[sample.prompt_index].append(sample.is_right)
    return {question: statistics.fmean(each) for question, each in grades.items()}


def _total_rate(measurements: Iterable[Measurement]) -> float | None:
    measurements = list(measurements)
    return _ratio(sum(each.num_tokens for each in measurements), sum(each.total_s for each in measurements))


def _decode_rate(measurements: Iterable[Measurement]) -> float | None:
    measurements = list(measurements)
    return _ratio(sum(each.num_decode_tokens for each in measurements), sum(each.decode_s for each in measurements))


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _quantile_ms(sorted_s: Sequence[float], share: float) -> float | None:
    return nearest_rank(sorted_s, share) * 1e3 if sorted_s else None
