"""What a network does to the bytes that cross it."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

from pilotfish.errors import ConfigError

_RETRANSMISSION_S = 0.2
"""Linux sends a lost segment again after this long at the earliest (TCP_RTO_MIN)."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """One direction of a link. The default is a wire that does nothing."""

    delay_ms: float = 0.0
    """From the arrival of bytes to their departure."""
    jitter_ms: float = 0.0
    """Up to this much is added to the delay, uniformly. Bytes never overtake each other."""
    loss: float = 0.0
    """Probability that a piece is lost: TCP sends it again, and all that follows waits for it."""
    bandwidth_bytes_per_s: float = 0.0
    """0: unlimited."""
    frozen: bool = False
    """Connections are made and stay open, nothing passes; what was held passes afterwards. So does a peer that
    was stopped (SIGSTOP)."""
    partitioned: bool = False
    """Bytes are lost for good and connections cannot be made. Those that were cut are reset when it heals."""
    close_after_bytes: int = 0
    """A connection is reset once this many bytes have passed; 0: never."""

    def __post_init__(self) -> None:
        numbers = (self.delay_ms, self.jitter_ms, self.bandwidth_bytes_per_s, self.close_after_bytes)
        if min(numbers) < 0 or not 0 <= self.loss < 1:
            raise ConfigError(f"conditions of a link cannot be negative, and loss is below 1: {self}")

    @classmethod
    def parse(cls, text: str) -> Conditions:
        """From words like `delay_ms=2 frozen=1`. Raises ConfigError."""
        kinds = {name: type(default) for name, default in dataclasses.asdict(cls()).items()}
        values: dict[str, float | int | bool] = {}
        for word in text.split():
            name, _, value = word.partition("=")
            if name not in kinds:
                raise ConfigError(f"a link has no {name!r}; known are {', '.join(kinds)}")
            try:
                values[name] = kinds[name](float(value or 1))
            except ValueError:
                raise ConfigError(f"{word!r}: {value!r} is not a number") from None
        return cls(**values)  # type: ignore[arg-type]  # the fields' own kinds

    def format(self) -> str:
        """What `parse` reads."""
        fields = ((field.name, getattr(self, field.name), field.default) for field in dataclasses.fields(self))
        return " ".join(f"{name}={float(value):.15g}" for name, value, default in fields if value != default)


class DelayLine:
    """When bytes leave that arrive now. One per direction and connection; no clock, no I/O."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._free_at_s = 0.0
        """When the bandwidth has carried all bytes so far."""
        self._last_s = 0.0

    def departure_s(self, conditions: Conditions, num_bytes: int, now_s: float) -> float:
        """On the clock of now_s; never before what came earlier leaves."""
        sent_s = now_s
        if conditions.bandwidth_bytes_per_s:
            sent_s = max(now_s, self._free_at_s) + num_bytes / conditions.bandwidth_bytes_per_s
            self._free_at_s = sent_s
        delay_s = (conditions.delay_ms + conditions.jitter_ms * self._random.random()) / 1000
        if conditions.loss and self._random.random() < conditions.loss:
            delay_s += _RETRANSMISSION_S
        self._last_s = max(self._last_s, sent_s + delay_s)
        return self._last_s
