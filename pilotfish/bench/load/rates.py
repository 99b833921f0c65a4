"""What came in the windows of runs, per second of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.bench.load.driver import Window
from pilotfish.bench.load.record import RequestRecord


@dataclass(frozen=True)
class Rates:
    """Per second of the windows, over all requests, measured or not."""

    due: float
    answered: float
    output_tokens: float
    prompt_tokens: float
    """Of answered requests."""
    in_flight: float
    """Requests under way, in the mean."""


def rates_of(windows: Sequence[Window]) -> Rates:
    """Pooled over all of them; 0 of windows without length."""
    duration_s = sum(window.duration_s for window in windows) or float("inf")
    ended = [record for window in windows for record in _ended_in(window)]
    num_due = sum(
        window.start_s <= record.scheduled_s < window.end_s for window in windows for record in window.records
    )
    return Rates(
        due=num_due / duration_s,
        answered=len(ended) / duration_s,
        output_tokens=sum(_num_tokens_in(window) for window in windows) / duration_s,
        prompt_tokens=sum(record.summary.num_prompt_tokens for record in ended if record.summary) / duration_s,
        in_flight=sum(_busy_s(window) for window in windows) / duration_s,
    )


def _ended_in(window: Window) -> list[RequestRecord]:
    """Answered requests whose end lies in the window, measured or not."""
    return [record for record in window.records if record.is_ok and window.start_s < record.ended_s <= window.end_s]


def _num_tokens_in(window: Window) -> int:
    return sum(
        num
        for record in window.records
        for time_s, num in zip(record.arrivals_s, record.num_arrived, strict=True)
        if window.start_s < time_s <= window.end_s
    )


def _busy_s(window: Window) -> float:
    """Seconds of the window, summed over the requests under way in it."""
    return sum(
        max(min(record.ended_s or window.end_s, window.end_s) - max(record.sent_s, window.start_s), 0.0)
        for record in window.records
    )
