"""What rounds and plain tokens take on one target replica: its step-cost table, and the overheads measured on top.

    plain_s(load)    = table(load rows) * plain ratio(load)
    seconds(load, K) = table(load * (1 + drafts of K) rows) + K * draft token(load) + overhead(load, K) + lost(load)

The table is that of the state of now: where drafting makes steps longer, plain_s is divided by that contention while
drafts are made, and the steps of rounds are multiplied by it while none are.

The overhead is what the orchestrator alone can see: the network, waiting for a step under way, sequences that take
turns in the target. It is learned by load and K, shrunk towards the load's common overhead.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

from orchestrator.control.gate import ON_ABOVE
from pilotfish.step_table import StepTable

_MAX_WEIGHT = 128.0
"""Rounds that an average remembers: single ones scatter by a third, so that it is known within 3 %."""
_FADING_ROUNDS = 512.0
"""Rounds in which measurements of other Ks lose most of their weight: a K that was dear for a while is tried again."""
_SHRINKAGE = 8.0
"""Rounds of a K that count as much as the common overhead of its load; runs that the time of a token in the target is
still worth when the drafter there gets new weights."""
_UNMEASURED = 0.5
"""Share of the common overhead that an untried K is charged, so that it is tried. Charged all of it, 4 of 96 simulated
loads are slower than 0.95 of the better of off and on; with half, 2."""
_REMEMBERED_SWITCHES = 16.0
"""Comparisons that contention is the average of: a drafter that has moved to a machine of its own is believed soon."""
_SAMPLES_PER_STEP = 3.0
"""The sequences of one step all measure the same step."""


class Average:
    """A moving average that knows how much supports it."""

    __slots__ = ("value", "weight")

    def __init__(self) -> None:
        self.value = self.weight = 0.0

    def add(self, value: float, weight: float) -> None:
        self.weight = min(self.weight + weight, _MAX_WEIGHT)
        self.value += weight / self.weight * (value - self.value)

    def doubt(self, weight: float) -> None:
        """Let what was measured count as no more than this."""
        self.weight = min(self.weight, weight)


@dataclass(slots=True)
class _Level:
    """What is known while about so many sequences decode."""

    plain_ratio: Average = field(default_factory=Average)
    """Time of a plain token over the table's step."""
    common: Average = field(default_factory=Average)
    """Overhead of a round, whatever its K."""
    by_k: dict[int, Average] = field(default_factory=dict)
    """Overhead and drafting of a round of K."""
    draft_token: Average = field(default_factory=Average)
    """Time that a round waits for each of its draft tokens."""
    lost: Average = field(default_factory=Average)
    """Cost of failed proposals, over all that were asked for: under load they come too late."""
    empty: Average = field(default_factory=Average)
    """Cost of an empty proposal, over the steps of the run that follows it."""
    interval: Average = field(default_factory=Average)
    """Time from step to step beside rounds, over the table's step of all their rows."""
    contention: Average = field(default_factory=Average)
    """Logarithm of the time of a step while drafts are made over that while none are: noise adds up to nothing."""
    in_target: Average = field(default_factory=Average)
    """Time of a token over the table's plain step, where the drafter is in the target."""


class RoundCosts:
    """Costs of one proposer's rounds on one target replica."""

    def __init__(self, table: StepTable) -> None:
        self.table = table
        """The step costs that the replica published last."""
        self.is_drafting: bool | None = None
        """Whether drafts are made while the table is measured; None: nobody looked for a while."""
        self._levels: dict[int, _Level] = defaultdict(_Level)
        self._num_swaps = 0

    def step_s(self, num_rows: float) -> float:
        """A step of so many rows. Never 0: an emulated engine may compute nothing, and that cannot be compared."""
        return max(1e-6, self.table.step_s(num_rows))

    def plain_s(self, load: int, rows: float) -> float:
        """A token of plain decoding in steps of so many rows."""
        longer = self._contention(load) if self.is_drafting else 1.0
        return self.step_s(rows) * self._ratio(load, "plain_ratio") / longer

    def interval_s(self, load: int, rows: float) -> float:
        """Time from step to step beside rounds: shorter than a step of all their rows where these take turns."""
        return self._drafting_step_s(load, rows) * self._ratio(load, "interval")

    def seconds(self, load: int, k: int, rows: float) -> float:
        """A round of K draft tokens, in steps of so many rows."""
        return max(1e-6, self._drafting_step_s(load, rows) + self._overhead_s(load, k) + self._level(load).lost.value)

    def empty_s(self, load: int) -> float:
        """What an empty proposal costs beside the plain tokens that follow it."""
        return self._nearest(load, "empty").value

    def add_plain(self, load: int, rows: float, token_s: float) -> None:
        """A token of a plain run took token_s."""
        self._level(load).plain_ratio.add(token_s / self.step_s(rows), _weight(load))

    def add_interval(self, load: int, rows: float, interval_s: float) -> None:
        """Record that beside rounds, steps followed each other in interval_s."""
        self._level(load).interval.add(interval_s / self.step_s(rows), _weight(load))

    def add_round(self, load: int, k: int, rows: float, elapsed_s: float, draft_s: float) -> None:
        """A round took elapsed_s while steps held so many rows; draft_s: what it waited for drafting itself."""
        level, weight = self._level(load), _weight(load)
        level.draft_token.add(draft_s / k, weight)
        overhead_s = elapsed_s - self.step_s(rows)
        level.common.add(overhead_s - k * level.draft_token.value, weight)
        level.by_k.setdefault(k, Average()).add(overhead_s, weight)
        for other, average in level.by_k.items():
            if other != k:
                average.weight *= 1 - weight / _FADING_ROUNDS

    def add_lost(self, load: int, lost_s: float) -> None:
        """A proposal was asked for: what it cost if it failed, else 0."""
        self._level(load).lost.add(lost_s, _weight(load))

    def add_empty(self, load: int, rows: float, num_run_tokens: int, elapsed_s: float) -> None:
        """An empty proposal and the run after it took elapsed_s."""
        self._level(load).empty.add(elapsed_s - num_run_tokens * self.step_s(rows), _weight(load))

    def add_contention(self, load: int, longer: float) -> None:
        """Steps were so many times as long while drafts were made as while none were."""
        contention = self._level(load).contention
        contention.doubt(_REMEMBERED_SWITCHES - 1)
        contention.add(math.log(longer), 1.0)

    def add_in_target(self, load: int, token_s: float, num_swaps: int = 0) -> None:
        """A token of a run that the target drafted for took token_s. num_swaps: of the drafter's weights so far; with
        new ones, what was measured before says less."""
        if num_swaps != self._num_swaps:
            self._num_swaps = num_swaps
            for level in self._levels.values():
                level.in_target.doubt(_SHRINKAGE)
        self._level(load).in_target.add(token_s / self.step_s(load), _weight(load))

    @property
    def has_in_target(self) -> bool:
        """Whether a run that the target drafted for was measured."""
        return any(level.in_target.weight for level in self._levels.values())

    def in_target_gain(self, load: int) -> float:
        """Speed over plain decoding's where the drafter is in the target; as long as that is unknown, worth a try."""
        ratio = self._nearest(load, "in_target")
        return self.plain_s(load, load) / self.step_s(load) / ratio.value if ratio.weight else 2 * ON_ABOVE - 1

    def _ratio(self, load: int, name: str) -> float:
        """The measured ratio to the table; towards 1 as long as little was measured."""
        ratio = self._nearest(load, name)
        return 1 + ratio.weight / (ratio.weight + 1) * (ratio.value - 1)

    def _drafting_step_s(self, load: int, rows: float) -> float:
        return self.step_s(rows) * (self._contention(load) if self.is_drafting is False else 1.0)

    def _contention(self, load: int) -> float:
        """Ratio of at least 1, as drafts make no step shorter. It is cut off only here, so that noise weighs both
        ways."""
        contention = self._level(load).contention  # of another load it says nothing: one request waits for its drafts
        return math.exp(max(0.0, contention.weight / (contention.weight + 1) * contention.value))

    def _overhead_s(self, load: int, k: int) -> float:
        """Overhead as measured for this K; with few measurements, mostly a part of other Ks', so that it is tried."""
        level = self._level(load)
        common, draft_token = self._nearest(load, "common"), self._nearest(load, "draft_token")
        # The first rounds under a load stand beside prefills: an overhead counts as far as it was sampled.
        support = common.weight / (common.weight + _SHRINKAGE) * (1.0 if level.common.weight else _UNMEASURED)
        expected_s = k * draft_token.value + support * common.value
        own, charge = level.by_k.get(k, Average()), _UNMEASURED if level.common.weight else 1.0
        share = own.weight / (own.weight + _SHRINKAGE)
        return share * own.value + (1 - share) * charge * expected_s

    def _level(self, load: int) -> _Level:
        return self._levels[_size(load)]

    def _nearest(self, load: int, name: str) -> Average:
        """The average measured under this load, else under the most similar one; of weight 0 if there is none."""
        size = _size(load)
        own: Average = getattr(self._level(load), name)
        if own.weight > 0:
            return own
        known = [(abs(other - size), other) for other, level in self._levels.items() if getattr(level, name).weight > 0]
        return getattr(self._levels[min(known)[1]], name) if known else own


def _size(load: int) -> int:
    """Loads within two fifths of each other are one."""
    return round(2 * math.log2(load))


def _weight(load: int) -> float:
    return min(1.0, _SAMPLES_PER_STEP / load)
