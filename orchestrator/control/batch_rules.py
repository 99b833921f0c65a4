"""Operators' rules about the decode load: how many draft tokens at most, whatever is measured."""

from __future__ import annotations

from orchestrator.control.replica_record import ReplicaRecord
from pilotfish.config import SpeculationConfig


class BatchRules:
    """`num_speculative_tokens_per_batch_size` and `disable_by_batch_size` (vLLM's spelling)."""

    def __init__(self, config: SpeculationConfig) -> None:
        self._ranges = config.num_speculative_tokens_per_batch_size
        self._threshold = config.disable_by_batch_size
        self._hysteresis = config.disable_by_batch_size_hysteresis

    def max_draft_tokens(self, replica: ReplicaRecord, limit: int) -> int:
        """At most `limit`, less where a rule says so; 0: speculation is off, which `replica` remembers."""
        num_sequences = replica.decode_load
        if self._threshold:
            if num_sequences >= self._threshold:
                replica.is_batch_too_large = True
            elif num_sequences < max(2, self._threshold - self._hysteresis):
                # A lone sequence always ends it, or a small threshold would never be passed again.
                replica.is_batch_too_large = False
            if replica.is_batch_too_large:
                return 0
        for first, last, num_draft_tokens in self._ranges:
            if first <= num_sequences <= last:
                return min(limit, num_draft_tokens)
        return limit
