"""From what the runs of one mode at one load saw to its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from pilotfish.bench.draft_metrics import DraftMetrics, draft_metrics
from pilotfish.bench.load.driver import Window
from pilotfish.bench.load.health import ClientHealth, client_health
from pilotfish.bench.load.level import Level
from pilotfish.bench.load.percentiles import Percentiles, percentiles_ms
from pilotfish.bench.load.rates import rates_of
from pilotfish.bench.load.record import RequestRecord
from pilotfish.bench.load.slo import Slo
from pilotfish.client.answer import Summary


class LoadPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One mode at one load. Rates are over the windows from the first measured request's due time to the last one's
    end, and count whatever came in them; the rest is about the measured requests. None: nothing to tell from."""

    mode: str
    load: str
    """As people write it."""
    load_kind: str
    load_value: float
    num_turns: int
    window_s: float
    num_requests: int
    num_failed: int
    errors: dict[str, int]
    """Failed requests by gRPC status."""
    first_errors: dict[str, str]
    """A message for each status."""
    mean_in_flight: float
    """Requests under way, in the mean over the windows."""
    offered_rps: float | None
    """Requests due per second; None in the closed loop, where it is whatever was achieved."""
    achieved_rps: float
    """Requests answered per second."""
    goodput_rps: float | None
    """achieved_rps, less the share that missed the objectives; None: no objectives."""
    good_share: float | None
    """Measured requests that met the objectives over all of them, failed ones included."""
    output_tokens_per_s: float
    total_tokens_per_s: float
    """Prompt tokens of answered requests included."""
    ttft_ms: Percentiles | None
    """Time to first token, from when the request was due (no coordinated omission)."""
    ttft_from_send_ms: Percentiles | None
    """From when the client had sent it; the difference is the client's own lag."""
    e2e_ms: Percentiles | None
    """Time to the last token, from when the request was due."""
    e2e_from_send_ms: Percentiles | None
    itl_ms: Percentiles | None
    """Gaps between arrivals of tokens, over all of them; tokens that come together have one gap."""
    tpot_ms: Percentiles | None
    """Time per output token after the first, over requests."""
    queue_ms: Percentiles | None
    """From arrival at the orchestrator to the target's first step, as the service reports it."""
    drafts: DraftMetrics | None
    reasons: dict[str, int]
    """Requests by the identifier of why speculation was off or limited for them; empty: it was not."""
    first_reasons: dict[str, str]
    """The service's words for each."""
    rounds_by_draft_tokens: dict[int, int]
    """Rounds by the draft tokens that they asked for; 0: runs of plain decoding."""
    client: ClientHealth
    throughput_ratio: float | None = None
    """output_tokens_per_s over the baseline mode's at the same load."""
    itl_ratio: float | None = None
    """Median gap over the baseline's."""
    e2e_ratio: float | None = None
    """Median end-to-end time over the baseline's."""
    num_compared: int = 0
    """Answers held against the baseline's answer to the same request."""
    num_differing: int = 0
    """Of those, answers with other tokens."""


def point_of(mode: str, level: Level, windows: Sequence[Window], slo: Slo | None) -> LoadPoint:
    """The figures of one or more runs (turns), pooled."""
    records = [record for window in windows for record in window.measured]
    answered = [record for record in records if record.is_ok]
    failed = [record for record in records if not record.is_ok]
    num_good = sum(slo.is_met(record) for record in records) if slo else None
    summaries = [record.summary for record in answered if record.summary is not None]
    rates = rates_of(windows)
    return LoadPoint(
        mode=mode,
        load=str(level),
        load_kind=level.kind,
        load_value=level.value,
        num_turns=len(windows),
        window_s=sum(window.duration_s for window in windows),
        num_requests=len(records),
        num_failed=len(failed),
        errors=dict(Counter(_code(record) for record in failed)),
        first_errors={_code(record): record.error for record in reversed(failed)},
        mean_in_flight=rates.in_flight,
        offered_rps=rates.due if level.is_open_loop else None,
        achieved_rps=rates.answered,
        goodput_rps=rates.answered * (num_good / len(answered)) if num_good is not None and answered else None,
        good_share=num_good / len(records) if num_good is not None and records else None,
        output_tokens_per_s=rates.output_tokens,
        total_tokens_per_s=rates.output_tokens + rates.prompt_tokens,
        ttft_ms=percentiles_ms(record.ttft_s for record in answered),
        ttft_from_send_ms=percentiles_ms(_less_lag(record.ttft_s, record) for record in answered),
        e2e_ms=percentiles_ms(record.e2e_s for record in answered),
        e2e_from_send_ms=percentiles_ms(_less_lag(record.e2e_s, record) for record in answered),
        itl_ms=percentiles_ms(gap_s for record in answered for gap_s in record.gaps_s),
        tpot_ms=percentiles_ms(record.tpot_s for record in answered),
        queue_ms=percentiles_ms(summary.queue_time_s for summary in summaries),
        drafts=draft_metrics(answered),
        reasons=dict(Counter(_reason_id(summary) for summary in summaries).most_common()),
        first_reasons={_reason_id(summary): summary.reason for summary in reversed(summaries) if summary.reason},
        rounds_by_draft_tokens=_rounds_by_draft_tokens(summaries),
        client=client_health(windows, level),
    )


def _code(record: RequestRecord) -> str:
    return record.error_code or "NO_TOKENS"


def _reason_id(summary: Summary) -> str:
    return summary.reason_id or summary.reason


def _rounds_by_draft_tokens(summaries: Sequence[Summary]) -> dict[int, int]:
    counts: Counter[int] = Counter()
    for summary in summaries:
        counts.update(summary.num_rounds_by_draft_tokens)
    return dict(sorted(counts.items()))


def _less_lag(time_s: float | None, record: RequestRecord) -> float | None:
    return time_s - record.lag_s if time_s is not None else None
