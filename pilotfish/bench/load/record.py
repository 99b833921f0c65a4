"""What became of one request, as the client saw it."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pilotfish.bench.arms import speculation_counts
from pilotfish.bench.measurement import SpeculationCounts
from pilotfish.bench.quantiles import nearest_rank
from pilotfish.client.answer import Summary


@dataclass(slots=True)
class RequestRecord:
    """Times are those of one clock of the client, in seconds."""

    index: int
    """Requests of one index are the same in every mode."""
    is_measured: bool
    """Neither warm-up nor there to keep the load up until the measured ones have ended."""
    scheduled_s: float
    """When it should have been sent; in the closed loop, when it was."""
    sent_s: float
    arrivals_s: array[float] = field(default_factory=lambda: array("d"))
    """When tokens came."""
    num_arrived: array[int] = field(default_factory=lambda: array("L"))
    """[len(arrivals_s)] tokens that came then."""
    ended_s: float = 0.0
    """When the call ended."""
    digest: int = 0
    """Of the token ids."""
    summary: Summary | None = None
    error_code: str = ""
    """gRPC status name of a failure; empty: none."""
    error: str = ""

    def add(self, token_ids: Sequence[int], now_s: float) -> None:
        """Tokens have come."""
        self.arrivals_s.append(now_s)
        self.num_arrived.append(len(token_ids))
        self.digest = zlib.crc32(array("I", token_ids).tobytes(), self.digest)

    @property
    def is_ok(self) -> bool:
        """Answered to its end, with at least one token."""
        return self.summary is not None and bool(self.arrivals_s)

    @property
    def num_tokens(self) -> int:
        """Output tokens."""
        return sum(self.num_arrived)

    @property
    def lag_s(self) -> float:
        """How late the client was to send it."""
        return self.sent_s - self.scheduled_s

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, from the scheduled arrival."""
        return self.arrivals_s[0] - self.scheduled_s if self.arrivals_s else None

    @property
    def e2e_s(self) -> float | None:
        """Time to the last token, from the scheduled arrival."""
        return self.arrivals_s[-1] - self.scheduled_s if self.arrivals_s else None

    @property
    def gaps_s(self) -> list[float]:
        """Between arrivals, that is vLLM's inter-token latency: tokens that come together have one gap."""
        return [later - earlier for earlier, later in pairwise(self.arrivals_s)]

    @property
    def itl_p95_s(self) -> float | None:
        """95 % of the gaps are no longer; None without gaps."""
        gaps = sorted(self.gaps_s)
        return nearest_rank(gaps, 0.95) if gaps else None

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None for a single one."""
        num_decoded = self.num_tokens - 1
        return (self.arrivals_s[-1] - self.arrivals_s[0]) / num_decoded if num_decoded > 0 else None

    @property
    def speculation(self) -> SpeculationCounts | None:
        return speculation_counts(self.summary) if self.summary is not None else None
