"""A lookup of one sequence, the same in the orchestrator, in the target and in the draft service."""

from __future__ import annotations

from collections.abc import Sequence

from pilotfish.speculation.lookup.index import LookupDraft, LookupIndex
from pilotfish.types import TreeRequest


class SequenceLookup:
    """A sequence's index, and the tokens that wait to be indexed: a long text is indexed in slices."""

    def __init__(self, index: LookupIndex, num_prompt_tokens: int) -> None:
        """Owns `index`, which is empty."""
        self._index = index
        self._num_prompt_tokens = num_prompt_tokens
        self._waiting: list[int] = []

    @property
    def length(self) -> int:
        """Tokens stated."""
        return len(self._index) + len(self._waiting)

    @property
    def num_waiting(self) -> int:
        """Tokens still to be indexed."""
        return len(self._waiting)

    def replace_from(self, start: int, token_ids: Sequence[int]) -> None:
        """State the tokens from index `start` on; at most `length`."""
        if start < len(self._index):
            self._index.truncate(start)
        del self._waiting[start - len(self._index) :]
        self._waiting.extend(token_ids)

    def index_some(self, max_tokens: int) -> int:
        """Index up to max_tokens of what waits; returns how many."""
        token_ids = self._waiting[:max_tokens]
        self._index.append(token_ids)
        del self._waiting[:max_tokens]
        return len(token_ids)

    def draft(self, max_depth: int, tree: TreeRequest | None = None) -> LookupDraft:
        """The draft after all tokens stated; see LookupIndex.propose."""
        self.index_some(len(self._waiting))
        return self._index.propose(max_depth, tree)

    def finish(self) -> None:
        """The sequence has ended: what is indexed of its output may serve others. Called once."""
        self._index.finish(self._num_prompt_tokens)
