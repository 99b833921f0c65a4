"""The committed tokens of a row of vLLM's batch, and what became of the drafts that it was given."""

from __future__ import annotations

from typing import Final

from pilotfish.integrations.vllm.batch_rows import RowStep
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.messages import OpenSequence
from pilotfish.speculation.common_prefix import num_common_tokens
from pilotfish.speculation.statistics import AcceptanceStatistics
from pilotfish.types import SamplingParams

_MAX_OUTPUT_TOKENS = 2**31 - 1
"""No limit: vLLM knows when to stop."""

GREEDY: Final = SamplingParams(temperature=0.0, max_tokens=_MAX_OUTPUT_TOKENS)
"""Greedy drafting. vLLM takes drafts as certain, without probabilities, and accepts each with the chance that its own
model gives it: the likeliest token is the best draft at any temperature."""


class CommittedRow:
    """The tokens that are sent to a draft replica and that drafts stand on."""

    def __init__(self, num_prompt_tokens: int, counters: ProposerCounters, traceparent: str) -> None:
        """traceparent: context of the span that is the row's life."""
        self._num_prompt_tokens = num_prompt_tokens
        self._counters = counters
        self._traceparent = traceparent
        self._token_ids: list[int] = []
        self.given: tuple[int, ...] = ()
        """The draft that vLLM verifies now."""
        self.acceptance = AcceptanceStatistics()
        """Acceptance of this row's drafts."""

    @property
    def length(self) -> int:
        """Committed tokens."""
        return len(self._token_ids)

    def tokens_since(self, position: int) -> tuple[int, ...]:
        """Committed tokens from absolute `position` on."""
        return tuple(self._token_ids[position:])

    def opening(self, sequence_id: int) -> OpenSequence:
        """The message that opens the sequence on a replica that continues it from here."""
        return OpenSequence(
            sequence_id=sequence_id,
            prompt_token_ids=tuple(self._token_ids[: self._num_prompt_tokens]),
            output_token_ids=self.output_token_ids,
            sampling=GREEDY,
            traceparent=self._traceparent,
        )

    @property
    def output_token_ids(self) -> tuple[int, ...]:
        return self.tokens_since(self._num_prompt_tokens)

    def commit(self, row: RowStep) -> None:
        """Add the tokens of vLLM's step: they show, too, what became of the last draft."""
        given, self.given = self.given, ()
        self._token_ids.extend(row.new_token_ids)
        # The last of the new tokens is vLLM's own.
        num_accepted = num_common_tokens(given, row.new_token_ids[:-1])
        for acceptance in (self.acceptance, self._counters.acceptance):
            acceptance.add(len(given), num_accepted)
