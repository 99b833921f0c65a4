"""The figures of one mode at one load, from what its runs saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from pilotfish.bench.load.driver import RequestRecord, Window
from pilotfish.bench.machine import Machine
from pilotfish.bench.metrics import DraftMetrics, Percentiles, draft_metrics, percentiles_ms


class LoadPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One mode at one load. Rates are over the windows from the first measured request's start to the last one's end,
    and count whatever came in them; the rest is about the measured requests. None: nothing was measured."""

    mode: str
    concurrency: int
    """Requests in flight."""
    num_turns: int
    window_s: float
    num_requests: int
    num_failed: int
    errors: dict[str, int]
    """Failed requests by gRPC status."""
    first_errors: dict[str, str]
    """A message for each status."""
    requests_per_s: float
    """Answered."""
    output_tokens_per_s: float
    output_tokens_per_s_by_turn: list[float]
    ttft_ms: Percentiles | None
    """Time to first token."""
    itl_ms: Percentiles | None
    """Gaps between arrivals of tokens, over all of them; tokens that come together have one gap."""
    tpot_ms: Percentiles | None
    """Time per output token after the first, over requests."""
    e2e_ms: Percentiles | None
    """Time to the last token."""
    queue_ms: Percentiles | None
    """Time from arrival at the orchestrator to the target's first step, as the service reports it."""
    drafts: DraftMetrics | None
    reasons: dict[str, int]
    """Requests by the identifier of why speculation was off or limited for them; empty: it was not."""
    first_reasons: dict[str, str]
    """The service's words for each."""
    rounds_by_draft_tokens: dict[int, int]
    """Rounds by the draft tokens that they asked for; 0: runs of plain decoding."""
    client_cpu_share: float
    """Share of one core that this program used: above 0.9 it was the bottleneck."""
    throughput_ratio: float | None = None
    """Ratio of output_tokens_per_s to the baseline mode's at the same load."""
    num_compared: int = 0
    """Answers held against the baseline's answer to the same request."""
    num_differing: int = 0
    """Compared answers with other tokens than the baseline's."""


def point_of(mode: str, concurrency: int, windows: Sequence[Window]) -> LoadPoint:
    """The figures of one or more runs (turns), pooled."""
    records = [record for window in windows for record in window.measured]
    answers = [record.answer for record in records if record.is_ok]
    failed = [record for record in records if not record.is_ok]
    summaries = [answer.summary for answer in answers if answer.summary is not None]
    rounds: Counter[int] = Counter()
    for summary in summaries:
        rounds.update(summary.speculation.num_rounds_by_draft_tokens)
    duration_s = sum(window.duration_s for window in windows)
    return LoadPoint(
        mode=mode,
        concurrency=concurrency,
        num_turns=len(windows),
        window_s=duration_s,
        num_requests=len(records),
        num_failed=len(failed),
        errors=dict(Counter(_code(record) for record in failed)),
        first_errors={_code(record): record.error for record in reversed(failed)},
        requests_per_s=sum(map(_num_ended_in, windows)) / (duration_s or float("inf")),
        output_tokens_per_s=sum(map(_num_tokens_in, windows)) / (duration_s or float("inf")),
        output_tokens_per_s_by_turn=[
            _num_tokens_in(window) / (window.duration_s or float("inf")) for window in windows
        ],
        ttft_ms=percentiles_ms(answer.time_to_first_token_s for answer in answers),
        itl_ms=percentiles_ms(gap_s for answer in answers for gap_s in answer.gaps_s),
        tpot_ms=percentiles_ms(answer.time_per_token_s for answer in answers),
        e2e_ms=percentiles_ms(answer.total_s for answer in answers),
        queue_ms=percentiles_ms(summary.queue_time_s for summary in summaries),
        drafts=draft_metrics(answers),
        reasons=dict(Counter(summary.speculation.reason_id for summary in summaries).most_common()),
        first_reasons={
            summary.speculation.reason_id: summary.speculation.reason
            for summary in reversed(summaries)
            if summary.speculation.reason
        },
        rounds_by_draft_tokens=dict(sorted(rounds.items())),
        client_cpu_share=max((window.cpu_share for window in windows), default=0.0),
    )


def _code(record: RequestRecord) -> str:
    return record.error_code or "NO_TOKENS"


def _num_ended_in(window: Window) -> int:
    """Answered requests whose end lies in the window, measured or not."""
    return sum(record.is_ok and window.start_s < record.ended_s <= window.end_s for record in window.records)


def _num_tokens_in(window: Window) -> int:
    """Tokens that came in the window, whatever became of their request."""
    return sum(
        arrival.num_tokens
        for record in window.records
        for arrival in record.answer.arrivals
        if window.start_s < record.sent_s + arrival.time_s <= window.end_s
    )


Windows = Mapping[tuple[int, str], Sequence[Window]]
"""What the turns of each (concurrency, mode) saw."""


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a report shows."""

    date: str
    """When it ended: ISO 8601, UTC."""
    machine: Machine
    conditions: dict[str, str | int | float | bool]
    baseline: str
    """The mode that ratios are over."""
    points: list[LoadPoint]
    """Load by load."""


def points_of(windows: Windows, baseline: str, *, with_texts: bool) -> list[LoadPoint]:
    """A point for each load and mode, held against the baseline mode at that load.

    with_texts: answers of one index must be equal in all modes and turns, so they are compared.
    """
    points = {key: point_of(mode, concurrency, turns) for key, turns in windows.items() for concurrency, mode in (key,)}
    compared = []
    for (concurrency, mode), point in points.items():
        plain = points.get((concurrency, baseline))
        if plain is None or mode == baseline:
            compared.append(point)
            continue
        ours, theirs = windows[concurrency, mode], windows[concurrency, baseline]
        num_compared, num_differing = _texts(ours, theirs) if with_texts else (0, 0)
        plain_per_s = plain.output_tokens_per_s
        compared.append(
            msgspec.structs.replace(
                point,
                throughput_ratio=point.output_tokens_per_s / plain_per_s if plain_per_s else None,
                num_compared=num_compared,
                num_differing=num_differing,
            )
        )
    return compared


def _texts(ours: Sequence[Window], theirs: Sequence[Window]) -> tuple[int, int]:
    """(answers that both gave, those that differ)."""
    plain = {record.index: record.answer.token_ids for window in theirs for record in window.measured if record.is_ok}
    both = [record for window in ours for record in window.measured if record.is_ok and record.index in plain]
    return len(both), sum(record.answer.token_ids != plain[record.index] for record in both)
