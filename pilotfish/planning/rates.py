"""How fast a replica reads prompts and decodes, by how many sequences decode there: what a simulated fleet runs at."""

from __future__ import annotations

from functools import partial

from pilotfish.engine.core.scheduler import MANY_PREFILLS, PREFILL_SHARE, num_prefill_rows
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.workload import Workload


class ReplicaRates:
    """Rates of one target replica, its drafters included. All tables are indexed by the batch, 0 included."""

    def __init__(self, model: DecodingModel) -> None:
        self.model = model
        batches = range(1, model.profile.max_sequences + 1)
        self.num_draft_tokens = [0, *(model.best_k(batch) for batch in batches)]
        """Draft tokens of a round (K)."""
        self.step_s = [0.0, *(model.verify_s(batch, self.num_draft_tokens[batch]) for batch in batches)]
        """Time of an ordinary step of the target."""
        self.token_s = [0.0, *(model.token_s(batch, self.num_draft_tokens[batch]) for batch in batches)]
        """Time from token to token of one sequence, on average."""
        self.num_rows = [0, *(batch * (self.num_draft_tokens[batch] + 1) for batch in batches)]
        """Rows of an ordinary step, if all sequences are in it."""
        self._num_chunk_tokens: dict[tuple[int, int], int] = {}

    def num_chunk_tokens(self, batch: int, num_waiting: int) -> int:
        """Prompt tokens that a step takes along, at most, where so many prompts wait."""
        if (batch, num_waiting) not in self._num_chunk_tokens:
            limit, num_rows = self.model.profile.max_batch_tokens, self.num_rows[batch]
            room = max(1, int(PREFILL_SHARE * limit), limit - num_rows)
            step_s = partial(self.model.step_s, max(1, batch))
            self._num_chunk_tokens[batch, num_waiting] = num_prefill_rows(step_s, num_rows, num_waiting, room)
        return self._num_chunk_tokens[batch, num_waiting]

    @property
    def crossover_batch(self) -> int | None:
        """The smallest batch from which on nothing is drafted; None where the largest still is."""
        last = max((batch for batch, k in enumerate(self.num_draft_tokens) if k), default=0)
        return last + 1 if last < self.model.profile.max_sequences else None

    def prefill(self, batch: int, num_prompt_tokens: int, num_waiting: int) -> tuple[float, float]:
        """Seconds until prompts of so many tokens in all are read, in steps that go on decoding for the batch; and how
        many times as long the batch's tokens take meanwhile. num_waiting: prompts that wait, these included."""
        chunk, num_rows = self.num_chunk_tokens(batch, num_waiting), self.num_rows[batch]
        num_mixed_rows = min(num_rows, max(1, self.model.profile.max_batch_tokens - chunk))
        num_full, rest = divmod(num_prompt_tokens, chunk)
        num_steps = num_full + bool(rest)
        duration_s = num_full * self.model.step_s(batch + 1, num_mixed_rows + chunk)
        if rest:
            duration_s += self.model.step_s(batch + 1, num_mixed_rows + rest)
        # Reading on in a prompt reads what was read of it before: half of it on average.
        cost = self.model.profile.target
        duration_s += (num_steps - 1) * (cost.step_s(1, 1, num_prompt_tokens // 2) - cost.step_s(1, 1))
        if not batch:
            return duration_s, 1.0
        # Rows that a step with a prompt has no room for wait for the next.
        return duration_s, max(1.0, num_rows / num_mixed_rows * duration_s / num_steps / self.step_s[batch])

    def capacity(self, workload: Workload, token_s: float) -> float:
        """Requests per second with which tokens come within token_s of each other, by mean values.

        Where `batch` sequences decode on average, so many requests come as make them so many (Little's law); tokens
        are slower for the share of the time in which prompts are read.
        """
        num_prompt_tokens, num_gaps = round(workload.mean_prompt_tokens), max(1.0, workload.mean_output_tokens - 1)
        profile = self.model.profile
        room = int(profile.kv_cache_tokens // (workload.mean_prompt_tokens + workload.mean_output_tokens))
        best = 0.0
        for batch in range(1, min(profile.max_sequences, room) + 1):
            prefill_s, slowdown = self.prefill(batch, num_prompt_tokens, MANY_PREFILLS)
            rate = batch / (num_gaps * self.token_s[batch] + batch * prefill_s * (1 - 1 / slowdown))
            if batch / (rate * num_gaps) <= token_s:
                best = max(best, min(rate, 1 / prefill_s))
        return best
