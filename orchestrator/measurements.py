"""What rounds cost and yield here, as measured: the facts that the controller decides on.

Shared by the requests of one orchestrator. Times are moving averages, so they follow the load.
"""

from __future__ import annotations

from collections import defaultdict

from pilotfish.speculation.statistics import DecayedAcceptance

_WEIGHT = 0.2
"""Of the latest value in a moving average: about the last ten values count."""
_MAX_VERIFICATIONS_PER_DECODE = 128
"""Where speculation always wins, nothing else tells what plain decoding takes by now: it costs about 1 %."""
_PRIOR_ACCEPTANCE = 0.6
_PRIOR_ROUNDS = 2.0


class MovingAverage:
    """An exponential moving average; None before the first value."""

    def __init__(self, value: float | None = None) -> None:
        self.value = value

    def add(self, value: float) -> None:
        self.value = value if self.value is None else (1 - _WEIGHT) * self.value + _WEIGHT * value


class StepTimes:
    """Seconds that the target's steps take, as the orchestrator sees them."""

    def __init__(self) -> None:
        self._decode = MovingAverage()
        self._verify: dict[int, MovingAverage] = defaultdict(MovingAverage)
        self._num_verifications = 0  # since decoding was measured

    @property
    def decode_s(self) -> float | None:
        """One plain decode step; None until one was measured."""
        return self._decode.value

    @property
    def is_decode_outdated(self) -> bool:
        """Whether plain decoding is due to be measured again."""
        return self._num_verifications >= _MAX_VERIFICATIONS_PER_DECODE

    def add_decode(self, elapsed_s: float, num_tokens: int) -> None:
        self._num_verifications = 0
        self._decode.add(elapsed_s / num_tokens)

    def add_verify(self, elapsed_s: float, num_draft_tokens: int) -> None:
        self._num_verifications += 1
        self._verify[num_draft_tokens].add(elapsed_s)

    def count_verification(self) -> None:
        """Something was verified whose time tells nothing about a verification alone."""
        self._num_verifications += 1

    def verify_s(self, num_draft_tokens: int) -> float:
        """Time to verify: measured, else between its measured neighbours, else that of a decode step."""
        measured = {k: average.value for k, average in self._verify.items() if average.value is not None}
        if num_draft_tokens in measured:
            return measured[num_draft_tokens]
        measured[0] = self.decode_s or 0.0
        below = max(k for k in measured if k < num_draft_tokens)
        above = min((k for k in measured if k > num_draft_tokens), default=None)
        if above is None:
            return measured[below]
        share = (num_draft_tokens - below) / (above - below)
        return (1 - share) * measured[below] + share * measured[above]


def new_acceptance(prior: float = _PRIOR_ACCEPTANCE) -> DecayedAcceptance:
    """Acceptance by position; `prior` is believed for the first few rounds."""
    return DecayedAcceptance(prior=prior, prior_weight=_PRIOR_ROUNDS)


class ProposerRecord:
    """What one proposer costs, and how well it guesses."""

    def __init__(self) -> None:
        self.acceptance = new_acceptance()
        self._per_token = MovingAverage()
        self._nodes_per_level = MovingAverage()
        self._run_token = MovingAverage()

    def add_propose(self, elapsed_s: float, num_draft_tokens: int) -> None:
        self._per_token.add(elapsed_s / num_draft_tokens)

    def add_shape(self, depth: int, num_draft_tokens: int) -> None:
        """A draft whose longest path has depth tokens had num_draft_tokens in all."""
        self._nodes_per_level.add(num_draft_tokens / depth)

    def num_draft_tokens(self, depth: int) -> int:
        """Tokens of a draft of this depth, as drafts were until now: more than the depth where they are trees."""
        return round(depth * (self._nodes_per_level.value or 1.0))

    @property
    def run_token_s(self) -> float | None:
        """Time of a token in runs that the target drafts for itself; None until one was measured."""
        return self._run_token.value

    def add_run(self, elapsed_s: float, num_tokens: int) -> None:
        self._run_token.add(elapsed_s / num_tokens)

    def propose_s(self, num_draft_tokens: int) -> float:
        """Time to propose; 0 until measured, so that it gets measured."""
        return (self._per_token.value or 0.0) * num_draft_tokens


class Measurements:
    """Everything measured, for the requests of one orchestrator."""

    def __init__(self) -> None:
        self.times = StepTimes()
        self._proposers: dict[str, ProposerRecord] = defaultdict(ProposerRecord)

    def proposer(self, name: str) -> ProposerRecord:
        return self._proposers[name]
