"""Every measured request on a line of its own, for programs that want more than percentiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pilotfish.bench.load.driver import Window
from pilotfish.bench.load.level import Level
from pilotfish.bench.load.record import RequestRecord
from pilotfish.bench.measurement import SpeculationCounts


class RequestDetails(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Times in milliseconds from when it was due; None: it did not get so far."""

    load: str
    mode: str
    turn: int
    index: int
    due_ms: float
    """Since the first measured request of its run was due."""
    lag_ms: float
    """How late the client sent it."""
    ttft_ms: float | None
    e2e_ms: float | None
    tpot_ms: float | None
    itl_ms: list[float]
    """Gaps between arrivals of tokens."""
    queue_ms: float | None
    num_prompt_tokens: int | None
    num_output_tokens: int
    error_code: str
    """gRPC status name; empty: answered."""
    error: str
    speculation: SpeculationCounts | None


def to_jsonl(windows: Mapping[tuple[Level, str], Sequence[Window]]) -> str:
    """A line for each, run by run."""
    encoder = msgspec.json.Encoder()
    return "".join(encoder.encode(details).decode() + "\n" for details in _all_details(windows))


def _all_details(windows: Mapping[tuple[Level, str], Sequence[Window]]) -> Iterator[RequestDetails]:
    for (level, mode), turns in windows.items():
        for turn, window in enumerate(turns):
            for record in window.measured:
                yield _details(record, str(level), mode, turn, window.start_s)


def _details(record: RequestRecord, load: str, mode: str, turn: int, start_s: float) -> RequestDetails:
    summary = record.summary
    return RequestDetails(
        load=load,
        mode=mode,
        turn=turn,
        index=record.index,
        due_ms=(record.scheduled_s - start_s) * 1e3,
        lag_ms=record.lag_s * 1e3,
        ttft_ms=_ms(record.ttft_s),
        e2e_ms=_ms(record.e2e_s),
        tpot_ms=_ms(record.tpot_s),
        itl_ms=[gap_s * 1e3 for gap_s in record.gaps_s],
        queue_ms=_ms(summary.queue_time_s) if summary else None,
        num_prompt_tokens=summary.num_prompt_tokens if summary else None,
        num_output_tokens=record.num_tokens,
        error_code=record.error_code,
        error=record.error,
        speculation=record.speculation,
    )


def _ms(value_s: float | None) -> float | None:
    return value_s * 1e3 if value_s is not None else None
