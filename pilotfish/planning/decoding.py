"""What a token takes in a batch, plainly and with drafts: closed formulas.

All sequences of a replica draft equally far and are verified in one step. What becomes of that where they get out of
step is rounds.py's business.
"""

from __future__ import annotations

from pilotfish.emulation.profiles import HardwareProfile
from pilotfish.errors import ConfigError
from pilotfish.planning.drafting import Drafting, Placement
from pilotfish.speculation.cost import best_gain


class DecodingModel:
    """One target replica and its share of the drafters. K: draft tokens of a round; 0 is plain decoding."""

    def __init__(
        self,
        profile: HardwareProfile,
        drafting: Drafting,
        *,
        placement: Placement = Placement.SEPARATE,
        context_tokens: float = 0.0,
        round_trip_s: float = 0.0,
        handling_s: float = 0.0,
        targets_per_drafter: float = 1.0,
        max_batch_tokens: int = 0,
    ) -> None:
        """context_tokens: mean length of a sequence while it decodes. round_trip_s: between the orchestrator and a
        replica, with all that is done on the way. handling_s: of each message by an orchestrator, which takes one after
        the other; only simulated rounds know of it. max_batch_tokens: of a step; 0 takes the profile's.

        Raises ConfigError for a profile whose steps take no time.
        """
        self.profile = profile
        self.drafting = drafting
        self.placement = placement
        self.context_tokens = context_tokens
        self.round_trip_s = round_trip_s if placement is Placement.SEPARATE else 0.0
        self.handling_s = handling_s
        self.targets_per_drafter = targets_per_drafter if placement is Placement.SEPARATE else 1.0
        self.max_batch_tokens = max_batch_tokens or profile.max_batch_tokens
        if self.step_s(1, 1) <= 0:
            raise ConfigError(f"profile {profile.name} has steps that take no time: there is nothing to plan")

    def step_s(self, num_sequences: float, num_tokens: float) -> float:
        """Of the target: what num_tokens rows of num_sequences sequences take, in as many steps as they need."""
        num_steps = max(1, -int(-num_tokens // self.max_batch_tokens))
        sequences = num_sequences / num_steps
        rows = num_tokens / num_steps
        return num_steps * self.profile.target.step_s(
            _at_least_one(sequences), _at_least_one(rows), round(sequences * self.context_tokens)
        )

    def draft_step_s(self, num_sequences: float, num_tokens: float | None = None) -> float:
        """Of a drafter: a token for each of num_sequences sequences, or num_tokens for all of them."""
        sequences = _at_least_one(num_sequences)
        rows = sequences if num_tokens is None else _at_least_one(num_tokens)
        return self.profile.draft.step_s(sequences, rows, round(sequences * self.context_tokens))

    def verify_s(self, batch: int, num_draft_tokens: int) -> float:
        """Without the way there and back."""
        return self.step_s(batch, batch * (num_draft_tokens + 1))

    def draft_s(self, batch: int, num_draft_tokens: int) -> float:
        """Without the way there and back. A drafter that serves several targets drafts for all their batches."""
        return num_draft_tokens * self.draft_step_s(batch * self.targets_per_drafter)

    def round_s(self, batch: int, num_draft_tokens: int) -> float:
        """From one verdict to the next; with 0 draft tokens a plain step, which needs no round trip."""
        if num_draft_tokens == 0:
            return self.step_s(batch, batch)
        verify_s = self.verify_s(batch, num_draft_tokens) + self.round_trip_s
        draft_s = self.draft_s(batch, num_draft_tokens)
        missed_s = draft_s + self.round_trip_s + verify_s
        num_outcomes = self.num_outcomes_ahead(batch, num_draft_tokens)
        if not num_outcomes:
            return missed_s
        hit_rate = self.drafting.hit_rate(num_draft_tokens, num_outcomes)
        # What is drafted ahead is begun when the draft before it is done, and pushed when it is ready.
        drafters_batch = batch * self.targets_per_drafter
        ahead_s = (num_draft_tokens + 1) * self.draft_step_s(drafters_batch, drafters_batch * num_outcomes)
        return hit_rate * max(verify_s, ahead_s) + (1 - hit_rate) * missed_s

    def num_outcomes_ahead(self, batch: int, num_draft_tokens: int) -> int:
        """Of each sequence. Drafting ahead needs somebody who is free while the target verifies."""
        if self.placement is not Placement.SEPARATE:
            return 0
        return self.drafting.num_outcomes_ahead(num_draft_tokens, round(batch * self.targets_per_drafter))

    def token_s(self, batch: int, num_draft_tokens: int) -> float:
        """Mean time from token to token of one sequence."""
        return self.round_s(batch, num_draft_tokens) / self.drafting.expected_tokens(num_draft_tokens)

    def speed_up(self, batch: int, num_draft_tokens: int) -> float:
        """Over plain decoding of the same batch."""
        return self.token_s(batch, 0) / self.token_s(batch, num_draft_tokens)

    def best_k(self, batch: int) -> int:
        """The K that makes this batch fastest, if all its sequences are in step."""
        if self.placement is Placement.NONE:
            return 0
        limit = self.drafting.max_draft_tokens
        rounds_s = [self.round_s(batch, k) for k in range(limit + 1)]
        best, gain = best_gain(self.drafting.rates(limit), rounds_s[0], rounds_s)
        return best if gain > 1 else 0


def _at_least_one(value: float) -> int:
    return max(1, round(value))
