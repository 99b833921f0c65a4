"""One answer as its client saw it: the raw material of every figure.

All contestants are counted alike: tokens are output token ids, times are the clock of the process that asked
(for a peer in a process of its own: of that process), from the moment of asking.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import msgspec

from pilotfish.client.answer import Summary
from pilotfish.types import TokenLogprobs


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """Tokens that came together."""

    time_s: float
    """Time since the request was sent."""
    num_tokens: int
    """Number of tokens, at least 1."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    token_ids: tuple[int, ...]
    arrivals: tuple[Arrival, ...]
    text: str | None = None
    """None: the contestant does not report it."""
    summary: Summary | None = None
    """How the answer came about, speculation included; None: the contestant does not report it."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One per token, where asked for."""

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def time_to_first_token_s(self) -> float:
        """0 for an answer without tokens."""
        return self.arrivals[0].time_s if self.arrivals else 0.0

    @property
    def total_s(self) -> float:
        """Time until the last token; 0 for an answer without tokens."""
        return self.arrivals[-1].time_s if self.arrivals else 0.0

    @property
    def num_decode_tokens(self) -> int:
        """Tokens after the first arrival: what decoding is measured by."""
        return sum(arrival.num_tokens for arrival in self.arrivals[1:])

    @property
    def decode_s(self) -> float:
        """Time from the first arrival to the last."""
        return self.total_s - self.time_to_first_token_s

    @property
    def time_per_token_s(self) -> float | None:
        """Per output token after the first (vLLM's TPOT); None for a single one."""
        return self.decode_s / (self.num_tokens - 1) if self.num_tokens > 1 else None

    @property
    def gaps_s(self) -> list[float]:
        """Times between arrivals, that is vLLM's inter-token latency: tokens that come together have one gap."""
        return [later.time_s - earlier.time_s for earlier, later in pairwise(self.arrivals)]


class Arm(Protocol):
    """A contestant: something that answers prompts in one fixed way."""

    @property
    def name(self) -> str:
        """Unique within a run."""

    def answer(self, prompt_token_ids: Sequence[int], *, max_tokens: int) -> Measurement:
        """Answer once. Raises PilotfishError."""
