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
        return self._round(batch, num_draft_tokens)[0]

    def token_s(self, batch: int, num_draft_tokens: int) -> float:
        """Mean time from token to token of one sequence."""
        round_s, num_tokens = self._round(batch, num_draft_tokens)
        return round_s / num_tokens

    def _round(self, batch: int, num_draft_tokens: int) -> tuple[float, float]:
        """Seconds and tokens of a round, drafting ahead or not, whatever gives more tokens a second."""
        tokens = self.drafting.expected_tokens(num_draft_tokens)
        if num_draft_tokens == 0:
            return self.step_s(batch, batch), tokens
        if self.placement is Placement.COLOCATED:
            return self.verify_s(batch, num_draft_tokens) + num_draft_tokens * self.draft_step_s(batch), tokens
        asked = self._asked_s(batch, num_draft_tokens), tokens
        num_outcomes = self.drafting.num_outcomes_ahead(num_draft_tokens, round(batch * self.targets_per_drafter))
        if not num_outcomes:
            return asked
        ahead = (
            self._ahead_s(batch, num_draft_tokens, num_outcomes),
            self.drafting.expected_tokens(num_draft_tokens, num_outcomes),
        )
        return min(asked, ahead, key=lambda way: way[0] / way[1])

    def _asked_s(self, batch: int, num_draft_tokens: int) -> float:
        """Round time where each draft is asked for: of all sequences together, or of two halves that take turns."""
        fastest_s = self._missed_s(batch, num_draft_tokens)
        if batch > 1:
            first = (batch + 1) // 2
            verify_s = self.verify_s(first, num_draft_tokens) + self.verify_s(batch - first, num_draft_tokens)
            fastest_s = min(fastest_s, max(verify_s, self._missed_s(first, num_draft_tokens)))
        return max(fastest_s, 2 * batch * self.handling_s)

    def _missed_s(self, batch: int, num_draft_tokens: int) -> float:
        """Round time of sequences that are all drafted for after their verdicts, and then verified in one step."""
        verify_s = self.verify_s(batch, num_draft_tokens)
        draft_step_s = self.draft_step_s(batch)
        handling_s = batch * self.handling_s
        # The last draft waits for the messages before it, or for the step that the first ones have begun.
        last_s = max(handling_s, draft_step_s) if batch > 1 else handling_s
        features_s = self._features_s(batch, num_draft_tokens)
        return verify_s + num_draft_tokens * draft_step_s + 2 * self.round_trip_s + features_s + handling_s + last_s

    def _features_s(self, batch: int, num_draft_tokens: int) -> float:
        """Time that the features of a round's tokens need on their two ways."""
        return batch * self.drafting.expected_tokens(num_draft_tokens) * self.features_s

    def _ahead_s(self, batch: int, num_draft_tokens: int, num_outcomes: int) -> float:
        """Mean round time where so many outcomes of each sequence are drafted for ahead; see docs/planning.md."""
        hit_rate = self.drafting.ahead_share(num_draft_tokens, num_outcomes)
        draft_step_s = self.draft_step_s(batch, num_outcomes)
        draft_s = (num_draft_tokens + (2 if self.drafting.is_head else 1)) * draft_step_s
        # A head makes a draft that somebody waits for first; of a model both share steps.
        free = hit_rate ** (batch - 1) if self.drafting.is_head else 1.0
        held_up_s = draft_s + (num_draft_tokens + 1) * draft_step_s
        round_s = free * self._drafted_ahead_s(batch, num_draft_tokens, hit_rate, draft_s)
        round_s += (1 - free) * self._drafted_ahead_s(batch, num_draft_tokens, hit_rate, held_up_s)
        return max(round_s, 2 * batch * self.handling_s)

    def _drafted_ahead_s(self, batch: int, num_draft_tokens: int, hit_rate: float, draft_s: float) -> float:
        """Mean round time where what is drafted ahead takes draft_s, from the command to the last token."""
        step_s = self.verify_s(batch, num_draft_tokens)
        away_s = self._missed_s(batch, num_draft_tokens) - step_s
        way_s = self.round_trip_s + self._features_s(batch, num_draft_tokens) / 2 + batch * self.handling_s
        if draft_s + 2 * way_s <= step_s:
            gone_on, late_s = hit_rate, 0.0
        elif draft_s + way_s <= step_s:
            gone_on, late_s = hit_rate / (1 + hit_rate), max(way_s, draft_s + 2 * way_s - step_s)
        else:
            # A step waits for all: for one whose outcome was not foreseen as well, which a head drafts for first.
            hit_rate **= batch if self.drafting.is_head else 1
            gone_on, late_s = 0.0, max(way_s, draft_s + way_s - step_s)
        late = hit_rate - gone_on
        if batch > 1 and gone_on:
            # Who does not go on finds a step under way that the others have begun.
            step_s = self.verify_s(_at_least_one(batch / (2 - gone_on)), num_draft_tokens)
            away_s, late_s = max(away_s, step_s), max(late_s, step_s)
        return step_s + late * late_s + (1 - hit_rate) * away_s

    def speed_up(self, batch: int, num_draft_tokens: int) -> float:
        """Tokens a second over those of plain decoding of the same batch."""
        return self.token_s(batch, 0) / self.token_s(batch, num_draft_tokens)

    def best_k(self, batch: int) -> int:
        """The K that makes this batch fastest, as a controller decides whose measurements are right."""
        times_s = [self.token_s(batch, k) for k in range(self.drafting.max_draft_tokens + 1)]
        limit_s = (1 + TOLERANCE) * min(times_s)
        return next(k for k, token_s in enumerate(times_s) if token_s <= limit_s)


def _at_least_one(value: float) -> int:
    return max(1, round(value))
