"""What is known of rounds of one proposer while about so many sequences decode."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.control.achieved_speed import AchievedSpeed
from orchestrator.control.propose_time import ProposeTime
from orchestrator.control.round_ratio import RoundRatio
from orchestrator.control.vain_asks import VainAsks
from orchestrator.control.window import RunningAverage

_MIN_STEPS = 8
"""Of which the share is known: fewer may be those of one half."""
_SHARE_WEIGHT = 0.01
"""Of the latest step: it wanders as sequences fall into groups and out of them, and what rounds take follows later."""
_SAMPLES_PER_STEP = 3
"""The sequences of one step all measure the same: as many of them are believed."""
_FIRST_RETRY_TOKENS = 512
_MAX_RETRY_TOKENS = 64 * _FIRST_RETRY_TOKENS
"""Plain tokens of each sequence after which rounds that once took too long are tried again; doubled each time."""


class LoadLevel:
    """Rounds while about so many sequences decode."""

    def __init__(self) -> None:
        self._share = RunningAverage(weight=_SHARE_WEIGHT)
        self._assumed_share: float | None = None
        self._ratio = RoundRatio()
        self.propose = ProposeTime()
        self.vain_asks = VainAsks()
        self.achieved = AchievedSpeed()
        self.expected_tokens_per_s = 0.0
        """Of each sequence, as prices promise while speculation is on; 0: nothing was promised yet."""
        self.num_draft_tokens = 0
        """What was best for drafts as good as all requests' are; 0: not known yet."""
        self._num_proposals = self._num_rounds = self._num_vain_asks = 0
        self._num_plain_tokens = 0
        self._retry_tokens = _FIRST_RETRY_TOKENS
        self.is_retry_due = False
        """Whether the best was assumed once more, and nobody has acted on it yet."""

    @property
    def is_measured(self) -> bool:
        """Whether there were enough rounds to tell what they take."""
        return self._ratio.is_known or self._share.num_values >= _MIN_STEPS

    @property
    def share(self) -> float | None:
        """Sequences in a step over all that decode: those that draft meanwhile miss it. Sequences that start a round
        while others are verified stay apart from them, so that two halves take turns: then it is a half. None as long
        as too little is known."""
        return self._share.value if self._share.num_values >= _MIN_STEPS else self._assumed_share

    def corrections(self, max_draft_tokens: int) -> Sequence[float] | None:
        """Element K: time of a round of K draft tokens over what is expected of it, K up to max_draft_tokens; None as
        long as too little is known."""
        factors = self._ratio.factors(max_draft_tokens)
        if factors is not None or self._assumed_share is None:
            return factors
        return [self._assumed_share] * (max_draft_tokens + 1)  # which is 1.0: the best is assumed

    def add_tokens(self, num_tokens: int, elapsed_s: float, num_sequences: int) -> None:
        """One of num_sequences got num_tokens in elapsed_s. At first, and at first of another try, the best is
        expected, which is no promise."""
        if self._ratio.is_believed:
            self.achieved.add(num_tokens, elapsed_s * self.expected_tokens_per_s, num_sequences)

    def add_share(self, share: float) -> None:
        self._share.add(share)

    def takes_proposal(self, num_sequences: int) -> bool:
        """Count a proposal; whether it is one of those that are believed: one moment in which all drafts are late must
        not count once for each sequence."""
        self._num_proposals += 1
        spacing = one_in(num_sequences)
        return self._num_proposals % spacing == 1 % spacing

    def takes_vain_ask(self, num_sequences: int) -> bool:
        """As takes_proposal."""
        self._num_vain_asks += 1
        return self._num_vain_asks % one_in(num_sequences) == 0

    def takes_round(self, num_sequences: int) -> bool:
        """Count a round; whether it is one of those that are believed."""
        if self._share.num_values < _MIN_STEPS:
            return False  # a correction makes sense only with what it corrects
        self._num_rounds += 1
        return self._num_rounds % one_in(num_sequences) == 0

    def add_round(self, ratio: float, num_draft_tokens: int, num_sequences: int) -> None:
        """ratio: time of the round over what was expected."""
        self._ratio.add(ratio, num_draft_tokens, self._num_rounds, num_sequences)

    def count_plain_tokens(self, num_tokens: int, num_sequences: int) -> None:
        """Tokens that were decoded plainly only because of what is recorded here: at last the best is assumed, but for
        half of what is known of draft lengths, of asking in vain and of promises."""
        self._num_plain_tokens += num_tokens
        if self._num_plain_tokens >= self._retry_tokens * num_sequences:
            self._num_plain_tokens = 0
            self._retry_tokens = min(2 * self._retry_tokens, _MAX_RETRY_TOKENS)
            self._share, self._assumed_share = RunningAverage(weight=_SHARE_WEIGHT), 1.0
            self._ratio.hope()
            self.vain_asks.hope()
            self.propose = ProposeTime()
            self.achieved.hope()
            self.is_retry_due = True


def one_in(num_sequences: int) -> int:
    """Of so many samples one is believed, where so many sequences measure the same steps."""
    return 1 + num_sequences // _SAMPLES_PER_STEP
