"""One sequence of a lookup, indexed in slices, and what is asked of it meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pilotfish.messages import Propose
from pilotfish.speculation.lookup.index import LookupDraft, LookupIndex
from pilotfish.types import SamplingParams


@dataclass(slots=True)
class LookupSequence:
    """A sequence's index, the tokens that are still to be indexed, and what is wanted after them."""

    sequence_id: int
    sampling: SamplingParams
    num_prompt_tokens: int
    index: LookupIndex
    backlog: list[int] = field(default_factory=list)
    request: Propose | None = None

    @property
    def length(self) -> int:
        return len(self.index) + len(self.backlog)

    def replace_from(self, start: int, token_ids: Sequence[int]) -> None:
        """State the tokens from index `start` on."""
        if start < len(self.index):
            self.index.truncate(start)
        del self.backlog[start - len(self.index) :]
        self.backlog.extend(token_ids)

    def index_some(self, max_tokens: int) -> int:
        """Index up to max_tokens of the backlog; returns how many."""
        tokens = self.backlog[:max_tokens]
        self.index.append(tokens)
        del self.backlog[:max_tokens]
        return len(tokens)

    def look_up(self, request: Propose, max_context_tokens: int) -> LookupDraft:
        """The draft for a request, once all tokens are indexed; none beyond the context."""
        room = max_context_tokens - request.base_length
        return self.index.propose(max(0, min(request.num_draft_tokens, room)), request.tree)

    def finish(self) -> None:
        """The sequence has ended."""
        if len(self.index) > self.num_prompt_tokens:
            self.index.finish(self.num_prompt_tokens)
