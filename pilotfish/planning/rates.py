"""How fast each sequence of a replica decodes, by how many decode there: what the fleet's fluids flow at."""

from __future__ import annotations

from pilotfish.engine.core.scheduler import PREFILL_SHARE
from pilotfish.planning.batch_times import BatchTimes
from pilotfish.planning.decoding import DecodingModel


class ReplicaRates:
    """Of one target replica, its drafters included. All tables are indexed by the batch, 0 included."""

    def __init__(self, model: DecodingModel, *, stepwise: bool = True) -> None:
        """stepwise: correct the closed formulas by simulated rounds, which takes some seconds."""
        self.model = model
        self.times = BatchTimes(model, stepwise=stepwise)
        sizes = range(model.profile.max_sequences + 1)
        self.num_draft_tokens = [0, *(self.times.policy_k(batch) for batch in sizes[1:])]
        """K."""
        self.step_s = [0.0, *(model.verify_s(batch, self.num_draft_tokens[batch]) for batch in sizes[1:])]
        """An ordinary step of the target."""
        self.token_s = [0.0, *(self.times.token_s(batch, self.num_draft_tokens[batch]) for batch in sizes[1:])]
        """From token to token of one sequence, on average."""
        self.num_rows = [batch * (self.num_draft_tokens[batch] + 1) for batch in sizes]
        """Of an ordinary step, if all sequences are in it."""
        limit = model.max_batch_tokens
        reserved = max(1, int(PREFILL_SHARE * limit))
        self.num_chunk_tokens = [max(reserved, limit - rows) for rows in self.num_rows]
        """Prompt tokens that a step takes along, at most."""

    def prefill_s(self, batch: int, num_prompt_tokens: int) -> float:
        """Until prompts of so many tokens in all are read, in steps that go on decoding for the batch."""
        num_full, rest = divmod(num_prompt_tokens, self.num_chunk_tokens[batch])
        result = num_full * self._mixed_step_s(batch, self.num_chunk_tokens[batch])
        if rest:
            result += self._mixed_step_s(batch, rest)
        # Reading on in a prompt reads what was read of it before: half of it on average.
        cost = self.model.profile.target
        context_s = cost.step_s(1, 1, num_prompt_tokens // 2) - cost.step_s(1, 1)
        return result + (num_full + bool(rest) - 1) * context_s

    def slowdown(self, batch: int, num_prompt_tokens: int, duration_s: float) -> float:
        """How much longer tokens of the batch take while prompts are read, as prefill_s says."""
        if not batch:
            return 1.0
        num_steps = -(-num_prompt_tokens // self.num_chunk_tokens[batch])
        # Rows that a step with a prompt has no room for wait for the next.
        delay = max(1.0, self.num_rows[batch] / self._num_mixed_rows(batch))
        return max(1.0, delay * duration_s / num_steps / self.step_s[batch])

    @property
    def crossover_batch(self) -> int | None:
        """The smallest batch from which on nothing is drafted; None where the largest still is."""
        last = max((batch for batch, k in enumerate(self.num_draft_tokens) if k), default=0)
        return last + 1 if last < self.model.profile.max_sequences else None

    def _num_mixed_rows(self, batch: int) -> int:
        return min(self.num_rows[batch], self.model.max_batch_tokens - self.num_chunk_tokens[batch])

    def _mixed_step_s(self, batch: int, num_chunk_tokens: int) -> float:
        return self.model.step_s(batch + 1, self._num_mixed_rows(batch) + num_chunk_tokens)
