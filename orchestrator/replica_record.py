"""What is known of one target replica: how busy it is, what its steps cost, what rounds with drafts take there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.step_costs import StepCosts
from orchestrator.window import ClippedAverage, MedianWindow, RunningAverage
from pilotfish.profiles import HardwareProfile
from pilotfish.types import LoadReport

_MAX_VERIFICATIONS_PER_DECODE = 512
"""Where speculation always wins, nothing else tells what plain decoding takes by now: it costs well under 1 %."""
_MOST = 0.8
"""Of the sequences: if so many speculate, a round takes what it takes if all do."""
_SAMPLES_PER_STEP = 3
_FIRST_RETRY_TOKENS = 256
"""Plain tokens of each sequence after which rounds that once took too long are tried again; doubled each time."""


class ProposeTime:
    """What waiting for a proposal of K tokens takes: a fixed part, which may be hidden, and a part for each token."""

    def __init__(self) -> None:
        self._fixed = ClippedAverage()
        self._per_token = ClippedAverage()

    @property
    def is_known(self) -> bool:
        return self._fixed.value is not None

    def add(self, num_tokens: int, elapsed_s: float, compute_s: float) -> None:
        """compute_s: the drafter's own account of the time that the tokens took it."""
        per_token_s = compute_s / num_tokens
        self._per_token.add(per_token_s)
        assert self._per_token.value is not None
        self._fixed.add(elapsed_s - self._per_token.value * num_tokens)

    def seconds(self, num_tokens: int) -> float:
        if self._fixed.value is None or self._per_token.value is None:
            return 0.0
        return max(0.0, self._fixed.value + self._per_token.value * num_tokens)


class RoundRecord:
    """Rounds of one proposer under one load."""

    def __init__(self) -> None:
        self.share_per_step = RunningAverage()
        """Decoding sequences in a step over all of them: those that draft meanwhile miss it. Sequences that start a
        round while others are verified stay apart from them, so that two halves take turns: then it is a half."""
        self.correction = MedianWindow()
        """Time of a round over what is expected of it."""
        self.propose = ProposeTime()
        self._num_rounds = 0
        self._num_plain_tokens = 0
        self._retry_tokens = _FIRST_RETRY_TOKENS

    def add_round(self, ratio: float, num_sequences: int) -> None:
        """ratio: time of the round over what was expected. The sequences of one step say the same: a few of them do."""
        self._num_rounds += 1
        if self._num_rounds % (1 + num_sequences // _SAMPLES_PER_STEP) == 0:
            self.correction.add(ratio)

    def count_plain_tokens(self, num_tokens: int, num_sequences: int) -> None:
        """Tokens that were decoded plainly only because of what is recorded here: it is forgotten at last."""
        self._num_plain_tokens += num_tokens
        if self._num_plain_tokens >= self._retry_tokens * num_sequences:
            self._num_plain_tokens = 0
            self._retry_tokens *= 2
            self.share_per_step, self.correction, self.propose = RunningAverage(), MedianWindow(), ProposeTime()


@dataclass(frozen=True, slots=True)
class Prices:
    """What the replica's next tokens cost if all its decoding sequences do the same. Seconds."""

    plain_s: float
    """One plain decode step."""
    rounds_s: Sequence[float]
    """Element K: proposing and verifying K tokens; element 0 is plain_s."""
    ideal_rounds_s: Sequence[float]
    """The same if verifications waited for nothing but their step and proposals took what they take a lone sequence."""


class ReplicaRecord:
    """Shared by the controllers of one orchestrator; time is in what they tell."""

    def __init__(self, profile: HardwareProfile | None = None) -> None:
        self.costs = StepCosts(None if profile is None else profile.target)
        self.is_batch_too_large = False
        """Whether disable_by_batch_size has speculation off."""
        self._profile = profile
        self._plain = MedianWindow()
        """Time of a token in a decode run over that of a step."""
        self._rounds: dict[tuple[str, int], RoundRecord] = {}
        self._num_verifications = 0  # since decoding was measured
        self._num_others = 0  # decoding sequences of other orchestrators
        self._num_own = 0
        self._num_own_rows = 0
        self._num_speculating = 0

    # Who decodes here.

    def join(self) -> None:
        """A sequence decodes here from now on: plainly, until it says otherwise."""
        self._num_own += 1
        self._num_own_rows += 1

    def leave(self, num_rows: int) -> None:
        self._num_own -= 1
        self._num_own_rows -= num_rows
        self._num_speculating -= num_rows > 1

    def change_rows(self, num_before: int, num_now: int) -> None:
        """A sequence computes num_now token rows a step instead of num_before."""
        self._num_own_rows += num_now - num_before
        self._num_speculating += (num_now > 1) - (num_before > 1)

    def observe(self, proposer: str, load: LoadReport, num_other_sequences: int) -> None:
        """num_other_sequences: of other orchestrators."""
        self._num_others = num_other_sequences
        if self.costs.add(load) and self.is_mostly_speculating:
            share = min(1.0, load.num_sequences_decoding / self.num_decoding)
            self._record(proposer, self.num_decoding).share_per_step.add(share)

    @property
    def num_decoding(self) -> int:
        """Sequences that decode or verify here. Prefills do not count, as far as they are this orchestrator's."""
        return max(1, self._num_own + self._num_others)

    @property
    def num_own(self) -> int:
        """Those of this orchestrator."""
        return self._num_own

    @property
    def is_mostly_speculating(self) -> bool:
        """Whether what a round takes now says what it takes when all speculate."""
        return self._num_speculating >= _MOST * self._num_own

    @property
    def _step_s(self) -> float:
        """A step of all that decode here, with as many rows as they have now."""
        num_rows = round(self.num_decoding * self._num_own_rows / max(1, self._num_own))
        return self.costs.step_s(self.num_decoding, num_rows)

    # What is measured.

    def add_decode(self, token_s: float) -> None:
        """A run took token_s for each of its tokens."""
        self._num_verifications = 0
        if not self.costs.is_known:
            # The replica has told nothing of its steps: what they seem to take has to do.
            self.costs.add_step(self.num_decoding, self.num_decoding, token_s)
        self._plain.add(token_s / self._step_s)

    def add_round(self, proposer: str, num_draft_tokens: int, elapsed_s: float) -> None:
        """Proposing and verifying took elapsed_s."""
        self.count_verification()
        if self.is_mostly_speculating:
            num_rows = self._num_own_rows / max(1, self._num_own)
            expected_s = self._round_s(
                proposer, num_rows, self._propose_s(proposer, self.num_decoding)(num_draft_tokens)
            )
            if expected_s > 0:
                self._record(proposer, self.num_decoding).add_round(elapsed_s / expected_s, self.num_decoding)

    def count_verification(self) -> None:
        """Something was verified whose time tells nothing about a verification alone."""
        self._num_verifications += 1

    def add_propose(self, proposer: str, num_tokens: int, elapsed_s: float, compute_s: float) -> None:
        """Waiting for num_tokens draft tokens took elapsed_s; compute_s of it the drafter says, 0: it does not."""
        num_sequences = max(1, self._num_speculating)
        if compute_s <= 0:
            model = self._profile
            compute_s = elapsed_s / 2 if model is None else model.propose_s(num_sequences, num_tokens)
        self._record(proposer, num_sequences).propose.add(num_tokens, elapsed_s, compute_s)

    def take_measurement(self) -> bool:
        """Whether plain decoding is due to be measured; whoever is told so has to."""
        if self._profile is None and self._plain.value is None:
            return True
        if self._num_verifications < _MAX_VERIFICATIONS_PER_DECODE:
            return False
        self._num_verifications = 0
        return True

    # What it costs.

    def plain_s(self) -> float:
        """A token of a decode run under the load of now; 0 as long as nothing is known."""
        return (self._plain.value or 1.0) * self.costs.step_s(self.num_decoding, self.num_decoding)

    def prices(self, proposer: str, max_draft_tokens: int, nodes: Callable[[int], int]) -> Prices:
        """nodes: draft tokens of a draft of that depth, which of a tree are more."""
        num_sequences = self.num_decoding
        plain_s = self.plain_s()
        ideal, correction = self._plain.value or 1.0, self._correction(proposer, num_sequences)
        rounds_s, ideal_rounds_s = [plain_s], [plain_s]
        propose_s = self._propose_s(proposer, num_sequences)
        lone_propose_s = self._propose_s(proposer, 1)
        for depth in range(1, max_draft_tokens + 1):
            num_rows = nodes(depth) + 1
            rounds_s.append(correction * self._round_s(proposer, num_rows, propose_s(depth)))
            ideal_s = ideal * self.costs.step_s(num_sequences, num_sequences * num_rows) + lone_propose_s(depth)
            ideal_rounds_s.append(min(rounds_s[-1], ideal_s))
        return Prices(plain_s, rounds_s, ideal_rounds_s)

    def count_plain_tokens(self, proposer: str, num_tokens: int) -> None:
        """Decoded plainly only because rounds take so long under this load: they are tried again some time."""
        self._record(proposer, self.num_decoding).count_plain_tokens(num_tokens, self.num_decoding)

    def _record(self, proposer: str, num_sequences: int) -> RoundRecord:
        key = (proposer, num_sequences.bit_length())
        if key not in self._rounds:
            self._rounds[key] = RoundRecord()
        return self._rounds[key]

    def _round_s(self, proposer: str, num_rows: float, propose_s: float) -> float:
        """Proposing and verifying if every sequence computes num_rows rows, before it is corrected."""
        num_sequences = self.num_decoding
        record = self._rounds.get((proposer, num_sequences.bit_length()))
        share = (record.share_per_step.value if record is not None else None) or 1.0
        step_s = self.costs.step_s(round(share * num_sequences), round(share * num_sequences * num_rows))
        # While some draft the target verifies for others: either hides the other.
        return max(step_s / share, step_s + propose_s)

    def _correction(self, proposer: str, num_sequences: int) -> float:
        """As measured under this load, else under the next lower one."""
        for size in range(num_sequences.bit_length(), 0, -1):
            record = self._rounds.get((proposer, size))
            if record is not None and record.correction.value is not None:
                return record.correction.value
        return self._plain.value or 1.0

    def _propose_s(self, proposer: str, num_sequences: int) -> Callable[[int], float]:
        for size in range(num_sequences.bit_length(), 0, -1):
            record = self._rounds.get((proposer, size))
            if record is not None and record.propose.is_known:
                return record.propose.seconds
        profile = self._profile
        if profile is None or proposer != "draft":
            return lambda _num_tokens: 0.0  # so that it gets measured
        return lambda num_tokens: profile.propose_s(num_sequences, num_tokens)
