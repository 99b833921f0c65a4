"""The committed tokens of a row of vLLM's batch, and what became of the drafts that it was given."""

from __future__ import annotations

from pilotfish.integrations.vllm.batch_rows import RowStep
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.speculation.common_prefix import num_common_tokens
from pilotfish.speculation.statistics import AcceptanceStatistics


class CommittedRow:
    """What a draft replica is told of, and drafts stand on."""

    def __init__(self, num_prompt_tokens: int, counters: ProposerCounters) -> None:
        self._num_prompt_tokens = num_prompt_tokens
        self._counters = counters
        self._token_ids: list[int] = []
        self.given: tuple[int, ...] = ()
        """The draft that vLLM verifies now."""
        self.acceptance = AcceptanceStatistics()
        """Of this row's drafts."""

    @property
    def length(self) -> int:
        """Committed tokens."""
        return len(self._token_ids)

    def tokens_since(self, position: int) -> tuple[int, ...]:
        """Committed tokens from absolute `position` on."""
        return tuple(self._token_ids[position:])

    @property
    def prompt_token_ids(self) -> tuple[int, ...]:
        return tuple(self._token_ids[: self._num_prompt_tokens])

    @property
    def output_token_ids(self) -> tuple[int, ...]:
        return self.tokens_since(self._num_prompt_tokens)

    def commit(self, row: RowStep) -> None:
        """What vLLM's step added: it tells, too, what became of the last draft."""
        given, self.given = self.given, ()
        self._token_ids.extend(row.new_token_ids)
        # The last of the new tokens is vLLM's own.
        num_accepted = num_common_tokens(given, row.new_token_ids[:-1])
        for acceptance in (self.acceptance, self._counters.acceptance):
            acceptance.add(len(given), num_accepted)
