"""What a load test does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.bench.load.lengths import FixedLength, Lengths
from pilotfish.bench.load.level import Level
from pilotfish.bench.load.slo import Slo
from pilotfish.bench.load.trace import TraceEntry
from pilotfish.client.answer import GenerateOptions
from pilotfish.errors import ConfigError

MODES = ("off", "on", "auto")
"""Of speculation, as requests ask for it."""
_DEFAULT_LENGTHS = FixedLength(128)


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """The loads, the modes that are held against each other at each of them, and the requests."""

    levels: tuple[Level, ...]
    modes: tuple[str, ...] = ("auto",)
    options: GenerateOptions
    """Sampling and speculation, the same for all modes but for `speculation`."""
    prompts: Sequence[str] = ()
    """Texts; empty: synthetic prompts."""
    prompt_lengths: Lengths = _DEFAULT_LENGTHS
    """Of synthetic prompts."""
    output_lengths: Lengths = _DEFAULT_LENGTHS
    trace: Sequence[TraceEntry] = ()
    num_requests: int | None = None
    """Measured requests of a run; None: by the level."""
    num_warm_up: int | None = None
    """Requests of a run before those; None: by the level."""
    num_turns: int = 1
    """Runs of each mode at each level."""
    slo: Slo | None = None
    seed: int = 0
    """Of arrivals, lengths, prompts and sampling."""
    num_channels: int = 4
    """TCP connections of the client."""
    timeout_s: float
    """Of one request."""

    def __post_init__(self) -> None:
        unknown = [mode for mode in self.modes if mode not in MODES]
        if unknown or not self.modes or len(set(self.modes)) < len(self.modes):
            raise ConfigError(f"modes {','.join(self.modes)!r}: name some of {', '.join(MODES)}, each once")
        if not self.levels:
            raise ConfigError("no load is given: name a concurrency, a rate or a trace")
        if any(level.kind == "trace" for level in self.levels) and (self.prompts or not self.trace):
            raise ConfigError("a trace says how long prompts are: it goes with synthetic prompts only")

    @property
    def baseline(self) -> str:
        """The mode that ratios are over: plain decoding where it runs."""
        return "off" if "off" in self.modes else self.modes[0]

    def warm_up(self, level: Level) -> int:
        """Requests of a run that come first and do not count."""
        return level.default_num_warm_up if self.num_warm_up is None else self.num_warm_up

    def requests(self, level: Level) -> int:
        """Measured requests of a run. Raises ConfigError where a trace has none left for it."""
        if level.kind != "trace":
            return self.num_requests or level.default_num_requests
        num_left = len(self.trace) - self.warm_up(level)
        if num_left < 1:
            raise ConfigError(f"the trace has {len(self.trace)} requests: none is left after the warm-up")
        return min(self.num_requests or num_left, num_left)
