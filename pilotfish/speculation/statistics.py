"""Acceptance statistics of speculation, for people and for control. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class SpeculationStats(msgspec.Struct, kw_only=True):
    """How the speculation of one answer went: pilotfish.v1.SpeculationStats."""

    num_rounds: int = 0
    """Rounds that verified at least one draft token."""
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_plain_tokens: int = 0
    """Output tokens decoded without a draft."""
    num_grammar_draft_tokens: int = 0
    """The part of num_draft_tokens that only the request's grammar drafted."""
    num_grammar_accepted_tokens: int = 0
    mean_acceptance_length: float = 1.0
    """1 + accepted / rounds."""
    acceptance_per_position: tuple[float, ...] = ()
    """Element i: rounds in which draft token i was accepted, over rounds that drafted it."""
    num_rounds_by_draft_tokens: dict[int, int] = {}
    """Rounds by the draft tokens that they asked for; 0: runs of plain decoding."""
    num_missed_deadlines: int = 0
    num_steps: int = 0
    """Steps of reasoning that a draft model wrote."""
    num_accepted_steps: int = 0
    num_step_tokens: int = 0
    """Output tokens of accepted steps; they are in none of the counts above."""
    drafter_version: int = 0
    """Version of the head that drafted last; 0: the configured one, or another drafter."""
    reason: str = ""
    """Why speculation was off or limited; empty if it was not."""
    reason_id: str = ""
    """Stable identifier of that reason."""

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted tokens."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else 0.0


class AcceptanceStatistics:
    """Exact counts over rounds that had drafts; plain steps are not rounds."""

    __slots__ = ("_accepted_at", "_drafted_at", "num_accepted_tokens", "num_draft_tokens", "num_rounds")

    def __init__(self) -> None:
        self.num_rounds = 0
        self.num_draft_tokens = 0
        self.num_accepted_tokens = 0
        self._drafted_at: list[int] = []
        self._accepted_at: list[int] = []

    def add(self, num_draft_tokens: int, num_accepted_tokens: int, draft_depth: int | None = None) -> None:
        """Count one round; a round without drafts is ignored.

        draft_depth: positions drafted, which of a tree are fewer than its tokens; None: all of a chain.
        """
        if num_draft_tokens == 0:
            return
        num_positions = num_draft_tokens if draft_depth is None else draft_depth
        self.num_rounds += 1
        self.num_draft_tokens += num_draft_tokens
        self.num_accepted_tokens += num_accepted_tokens
        missing = num_positions - len(self._drafted_at)
        self._drafted_at.extend([0] * missing)
        self._accepted_at.extend([0] * missing)
        for position in range(num_positions):
            self._drafted_at[position] += 1
            self._accepted_at[position] += position < num_accepted_tokens

    @property
    def mean_acceptance_length(self) -> float:
        """Output tokens per round, the recovered or bonus token counted: 1 + accepted / rounds."""
        return 1 + self.num_accepted_tokens / self.num_rounds if self.num_rounds else 1.0

    @property
    def num_accepted_tokens_per_position(self) -> tuple[int, ...]:
        return tuple(self._accepted_at)

    @property
    def acceptance_per_position(self) -> tuple[float, ...]:
        """Share of the rounds that drafted position i in which drafts 0..i were all accepted."""
        return tuple(accepted / drafted for accepted, drafted in zip(self._accepted_at, self._drafted_at, strict=True))


class DecayedAcceptance:
    """Acceptance probability of each draft position with old rounds fading.

    A position is conditional on those before it: it learns only from rounds that reached it.
    """

    __slots__ = ("_accepted", "_decay", "_neighbour_weight", "_prior", "_prior_weight", "_reached")

    def __init__(
        self,
        *,
        half_life_rounds: float = 32.0,
        prior: float = 0.5,
        prior_weight: float = 1.0,
        neighbour_weight: float | None = None,
    ) -> None:
        """prior: the belief before any round, worth prior_weight rounds.

        neighbour_weight: rounds that the belief in one position is worth for the next; None: prior_weight.
        """
        self._neighbour_weight = prior_weight if neighbour_weight is None else neighbour_weight
        self._decay = 0.5 ** (1 / half_life_rounds)
        self._prior = prior
        self._prior_weight = prior_weight
        self._reached: list[float] = []
        self._accepted: list[float] = []

    def add(self, num_draft_tokens: int, num_accepted_tokens: int, num_rounds: float = 1.0) -> None:
        """Learn from one round, or one that stands for num_rounds."""
        decay = self._decay**num_rounds
        missing = num_draft_tokens - len(self._reached)
        self._reached.extend([0.0] * missing)
        self._accepted.extend([0.0] * missing)
        for position in range(min(num_draft_tokens, num_accepted_tokens + 1)):
            num_accepted = num_rounds * (position < num_accepted_tokens)
            self._reached[position] = self._reached[position] * decay + num_rounds
            self._accepted[position] = self._accepted[position] * decay + num_accepted

    def doubt(self, num_rounds: float) -> None:
        """Let what was learnt count as no more than so many rounds at any position."""
        for position, reached in enumerate(self._reached):
            if reached > num_rounds:
                self._reached[position] = num_rounds
                self._accepted[position] *= num_rounds / reached

    def probabilities(self, num_positions: int, priors: Sequence[float] = ()) -> tuple[float, ...]:
        """Pr(draft i accepted | all before it were), for `cost`; unseen positions hold the belief before them.

        priors: the belief before any round, by position, in place of the one that was given at first.
        """
        belief, weight = self._prior, self._prior_weight
        beliefs = []
        for position in range(num_positions):
            if position < len(priors):
                belief, weight = priors[position], self._prior_weight
            if position < len(self._reached) and self._reached[position] > 0:
                accepted = self._accepted[position] + weight * belief
                belief = accepted / (self._reached[position] + weight)
            beliefs.append(belief)
            weight = self._neighbour_weight
        return tuple(beliefs)
