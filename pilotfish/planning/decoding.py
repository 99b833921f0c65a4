"""What a token takes in a batch, plainly and with drafts: closed formulas.

A round of B sequences with K drafts each takes K steps of the drafter, a verification of B x (K + 1) rows, the way
there and back twice, and 2 x B messages that an orchestrator handles one after the other. What was drafted ahead and is
with the target when it decides takes the verification alone. Either all are verified in
one step, or two halves take turns: one is drafted for while the other is verified, and the weights are read twice. The
target does what is faster (engine/batching), and so does this.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from pilotfish.emulation.profiles import HardwareProfile
from pilotfish.errors import ConfigError
from pilotfish.planning.draft_assumptions import DraftAssumptions, Placement

TOLERANCE = 0.03
"""Among draft lengths that differ by less, the shortest is best: the rows of longer ones are taken from prompts."""


@dataclass(frozen=True)
class DecodingModel:
    """One target replica and its share of the drafters. K: draft tokens of a round; 0 is plain decoding.

    Raises ConfigError for a profile whose steps take no time.
    """

    profile: HardwareProfile
    drafting: DraftAssumptions
    _: KW_ONLY
    placement: Placement = Placement.SEPARATE
    context_tokens: float = 0.0
    """Mean length of a sequence while it decodes."""
    round_trip_s: float = 0.0
    """Time between the orchestrator and a replica, there and back, with all that is done on the way."""
    handling_s: float = 0.0
    """Time that an orchestrator needs for each message."""
    targets_per_drafter: float = 1.0
    features_s: float = 0.0
    """Time that the features of one token need from the target to a head elsewhere."""

    def __post_init__(self) -> None:
        if self.step_s(1, 1) <= 0:
            raise ConfigError(f"profile {self.profile.name} has steps that take no time: there is nothing to plan")

    def step_s(self, num_sequences: int, num_tokens: int) -> float:
        """Time of the target for num_tokens rows of num_sequences sequences, in as many steps as they need."""
        num_steps = max(1, -(-num_tokens // self.profile.max_batch_tokens))
        sequences = num_sequences / num_steps
        context_tokens = round(sequences * self.context_tokens)
        return num_steps * self.profile.target.step_s(
            _at_least_one(sequences), _at_least_one(num_tokens / num_steps), context_tokens
        )

    def draft_step_s(self, batch: int, rows_each: int = 1) -> float:
        """Time of a drafter's step, for so many sequences of each of its targets, with so many rows each."""
        sequences = _at_least_one(batch * self.targets_per_drafter)
        return self.profile.draft.step_s(sequences, sequences * rows_each, round(sequences * self.context_tokens))

    def verify_s(self, batch: int, num_draft_tokens: int) -> float:
        """Time of a verification, without the way there and back."""
        return self.step_s(batch, batch * (num_draft_tokens + 1))

    def round_s(self, batch: int, num_draft_tokens: int) -> float:
        """Time from one verdict to the next; with 0 draft tokens a plain step, which needs no round trip."""
        if num_draft_tokens == 0:
            return self.step_s(batch, batch)
        if self.placement is Placement.COLOCATED:
            return self.verify_s(batch, num_draft_tokens) + num_draft_tokens * self.draft_step_s(batch)
        num_outcomes = self.drafting.num_outcomes_ahead(num_draft_tokens, round(batch * self.targets_per_drafter))
        fastest_s = self._together_s(batch, num_draft_tokens, num_outcomes)
        if batch > 1:
            first = (batch + 1) // 2
            verify_s = self.verify_s(first, num_draft_tokens) + self.verify_s(batch - first, num_draft_tokens)
            fastest_s = min(fastest_s, max(verify_s, self._together_s(first, num_draft_tokens, num_outcomes)))
        return max(fastest_s, 2 * batch * self.handling_s)

    def _together_s(self, batch: int, num_draft_tokens: int, num_outcomes: int) -> float:
        """Round time of sequences that are all verified in one step. num_outcomes: drafted for ahead, for each of
        them."""
        step_s = self.verify_s(batch, num_draft_tokens)
        verify_s = step_s + self.round_trip_s
        draft_step_s = self.draft_step_s(batch)
        handling_s = batch * self.handling_s
        # The last draft waits for the messages before it, or for the step that the first ones have begun.
        last_s = max(handling_s, draft_step_s) if batch > 1 else handling_s
        features_s = batch * self.drafting.expected_tokens(num_draft_tokens) * self.features_s
        missed_s = verify_s + num_draft_tokens * draft_step_s + self.round_trip_s + features_s + handling_s + last_s
        if not num_outcomes:
            return missed_s
        hit_rate = self.drafting.hit_rate(num_draft_tokens, num_outcomes)
        # One step more: the outcomes are chosen when the token after the draft is known, too.
        ahead_s = (num_draft_tokens + 1) * self.draft_step_s(batch, num_outcomes)
        # From the verdict to the drafter, and from there to the target: in time, a sequence goes on by itself.
        if ahead_s + 2 * self.round_trip_s + handling_s <= step_s:
            away_s = missed_s - step_s
            # Who was not foreseen finds a step under way that the others have begun.
            return step_s + (1 - hit_rate) * (max(away_s, step_s) if batch > 1 else away_s)
        # One outcome that was not foreseen, and the others wait for its draft.
        hit_rate **= batch
        return hit_rate * max(verify_s + handling_s, ahead_s) + (1 - hit_rate) * missed_s

    def token_s(self, batch: int, num_draft_tokens: int) -> float:
        """Mean time from token to token of one sequence."""
        return self.round_s(batch, num_draft_tokens) / self.drafting.expected_tokens(num_draft_tokens)

    def speed_up(self, batch: int, num_draft_tokens: int) -> float:
        """Over plain decoding of the same batch."""
        return self.token_s(batch, 0) / self.token_s(batch, num_draft_tokens)

    def best_k(self, batch: int) -> int:
        """The K that makes this batch fastest, as a controller decides whose measurements are right."""
        times_s = [self.token_s(batch, k) for k in range(self.drafting.max_draft_tokens + 1)]
        limit_s = (1 + TOLERANCE) * min(times_s)
        return next(k for k, token_s in enumerate(times_s) if token_s <= limit_s)


def _at_least_one(value: float) -> int:
    return max(1, round(value))
