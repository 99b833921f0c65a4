"""The committed tokens of a row of vLLM's batch, and what became of the drafts that it was given."""

from __future__ import annotations

from pilotfish.integrations.vllm.batch_rows import RowStep
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.row_trace import RowTrace
from pilotfish.speculation.common_prefix import num_common_tokens


class CommittedRow:
    """What a draft replica is told of, and drafts stand on."""

    def __init__(self, num_prompt_tokens: int, counters: ProposerCounters, trace: RowTrace) -> None:
        self.trace = trace
        self._num_prompt_tokens = num_prompt_tokens
        self._counters = counters
        self._token_ids: list[int] = []
        self.given: tuple[int, ...] = ()
        """The draft that vLLM verifies now."""

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

    def commit(self, row: RowStep, num_verified: int | None = None) -> None:
        """What vLLM's step added: it tells, too, what became of the last draft.

        num_verified: tokens of it that were worth verifying; None: all.
        """
        given, self.given = self.given[:num_verified], ()
        self._token_ids.extend(row.new_token_ids)
        if given:
            # The last of the new tokens is vLLM's own.
            num_accepted = num_common_tokens(given, row.new_token_ids[:-1])
            self._counters.acceptance.add(len(given), num_accepted)
            self.trace.add_verified(len(given), num_accepted)
        else:
            self._counters.num_plain_tokens += row.num_sampled_tokens

    def give(self, draft_token_ids: tuple[int, ...]) -> None:
        """vLLM verifies this draft next."""
        self.given = draft_token_ids

    def rest_of(self, base_length: int, draft_token_ids: tuple[int, ...]) -> tuple[int, ...]:
        """What is left of a draft on an earlier length, if its beginning was committed since. Empty: nothing."""
        committed = self.tokens_since(base_length)
        if not committed or num_common_tokens(draft_token_ids, committed) < len(committed):
            return ()
        return draft_token_ids[len(committed) :]

    def fate_of(self, base_length: int, draft_token_ids: tuple[int, ...]) -> int | None:
        """Tokens of a draft on an earlier length that would have been accepted; None: that is not certain yet.

        Of sampled answers as well, on average: vLLM's own draw is a draft's token as often as it would accept it.
        """
        committed = self.tokens_since(base_length)
        num_accepted = num_common_tokens(draft_token_ids, committed)
        is_certain = num_accepted < len(committed) or num_accepted == len(draft_token_ids)
        return num_accepted if is_certain else None
