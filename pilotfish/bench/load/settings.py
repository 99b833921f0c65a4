"""What a load test does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.bench.load.lengths import Lengths, parse_lengths
from pilotfish.client.answer import GenerateOptions
from pilotfish.errors import ConfigError

MODES = ("off", "on", "auto")
"""Of speculation, as requests ask for it."""
_DEFAULT_LENGTHS = parse_lengths("128")


@dataclass(frozen=True, kw_only=True)
class LoadSettings:
    """The loads, the modes that are held against each other at each of them, and the requests."""

    concurrencies: tuple[int, ...]
    """Requests in flight: clients, each of whom asks again when it has its answer."""
    modes: tuple[str, ...] = ("auto",)
    options: GenerateOptions
    """Sampling and speculation, the same for all modes but for `speculation`."""
    prompts: Sequence[str] = ()
    """Texts; empty: synthetic prompts."""
    prompt_lengths: Lengths = _DEFAULT_LENGTHS
    """Of synthetic prompts."""
    output_lengths: Lengths = _DEFAULT_LENGTHS
    num_requests: int | None = None
    """Measured requests of a run; None: by the load."""
    num_turns: int = 1
    """Runs of each mode at each load."""
    seed: int = 0
    """Of lengths, prompts and sampling."""
    timeout_s: float
    """Of one request."""

    def __post_init__(self) -> None:
        unknown = [mode for mode in self.modes if mode not in MODES]
        if unknown or not self.modes or len(set(self.modes)) < len(self.modes):
            raise ConfigError(f"modes {','.join(self.modes)!r}: name some of {', '.join(MODES)}, each once")
        if not self.concurrencies or min(self.concurrencies) < 1:
            raise ConfigError("concurrency must be 1 or more requests in flight, such as 1,4,16")

    @property
    def baseline(self) -> str:
        """The mode that ratios are over: plain decoding where it runs."""
        return "off" if "off" in self.modes else self.modes[0]

    def requests(self, concurrency: int) -> int:
        """Measured requests of a run: enough for the median; percentiles beyond it want more."""
        return self.num_requests or max(16, 4 * concurrency)
