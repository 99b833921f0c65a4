"""Which answers are good enough: goodput counts only those."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pilotfish.bench.load.record import RequestRecord
from pilotfish.errors import ConfigError

_ALIASES: Mapping[str, str] = {"e2el": "e2e"}
"""vLLM's name."""


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """Service-level objectives of one answer, in milliseconds; None: it does not matter.

    In the open loop times count from the arrival that was scheduled, not from when the client got to send it.
    """

    ttft: float | None = None
    """Time to first token."""
    tpot: float | None = None
    """Time per output token after the first, in the mean over the answer."""
    itl: float | None = None
    """Gap between arrivals of tokens: 95 % of an answer's gaps are no longer."""
    e2e: float | None = None
    """Until the last token."""

    def __str__(self) -> str:
        limits = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return ", ".join(f"{name} at most {limit:g} ms" for name, limit in limits if limit is not None)

    def is_met(self, record: RequestRecord) -> bool:
        """Whether a request was answered, and well enough."""
        return record.is_ok and all(
            limit_ms is None or value_s is None or value_s * 1e3 <= limit_ms
            for limit_ms, value_s in (
                (self.ttft, record.ttft_s),
                (self.tpot, record.tpot_s),
                (self.itl, record.itl_p95_s),
                (self.e2e, record.e2e_s),
            )
        )


def parse_slo(texts: list[str]) -> Slo | None:
    """`NAME:MS` each, commas or blanks between several: `ttft:500,itl:50`. None for nothing. Raises ConfigError."""
    limits: dict[str, float] = {}
    for part in " ".join(texts).replace(",", " ").split():
        name, separator, value = part.partition(":")
        name = _ALIASES.get(name, name)
        if name not in Slo.__struct_fields__:
            raise ConfigError(f"objective {part!r}: known are {', '.join(Slo.__struct_fields__)}, such as ttft:500")
        if name in limits:
            raise ConfigError(f"objective {name} is given twice")
        limits[name] = _milliseconds(part, value if separator else "")
    return Slo(**limits) if limits else None


def _milliseconds(part: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigError(f"objective {part!r} needs a limit in milliseconds above 0, such as ttft:500")
    return value
