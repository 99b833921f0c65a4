"""Lookups in this process: a drafter that needs no replica."""

from __future__ import annotations

from orchestrator.answers.sequence import Sequence
from orchestrator.rounds.commands import Command, Event, Wake, Woken
from orchestrator.rounds.draft import NO_DRAFT, Draft
from orchestrator.rounds.drafters.drafter import Drafter
from orchestrator.rounds.drafters.lookup_budget import LookupBudget
from pilotfish.speculation.lookup.index import LookupIndex, one_hot_probs
from pilotfish.types import TreeRequest

_TOKENS_PER_SLICE = 128
"""Tokens indexed before others get their turn: under a millisecond."""


class LookupDrafter(Drafter):
    """One per request. Reads a long prompt in slices: each asks to be woken for the next."""

    def __init__(
        self,
        index: LookupIndex,
        budget: LookupBudget,
        out: list[Command],
        *,
        num_prompt_tokens: int,
        tree: TreeRequest | None = None,
    ) -> None:
        """Owns `index`, which is empty. budget: of all requests. tree: how drafts may branch; None: chains."""
        self._index: LookupIndex | None = index
        """None: it was closed, or found no room."""
        self._budget = budget
        self._num_taken = 0
        """Tokens of the budget that it has."""
        self._absence = ""
        self._out = out
        self._num_prompt_tokens = num_prompt_tokens
        self._tree = tree
        self._asked: tuple[int, float] | None = None
        """Draft tokens that are waited for, and since when."""

    @property
    def unavailable_reason(self) -> str:
        return self._absence

    def prepare(self, sequence: Sequence, now_s: float) -> None:
        self._read(sequence, now_s)

    def ask(self, sequence: Sequence, num_tokens: int, now_s: float) -> Draft | None:
        self._asked = num_tokens, now_s
        return self._settled(sequence, now_s)

    def hear(self, event: Event, sequence: Sequence, now_s: float) -> Draft | None:
        return self._settled(sequence, now_s) if isinstance(event, Woken) else None

    def glance(self, sequence: Sequence, num_tokens: int) -> Draft:
        index = self._index_with_room(sequence)
        if index is None or sequence.length - len(index) > _TOKENS_PER_SLICE:
            return NO_DRAFT
        index.append(sequence.tokens_since(len(index)))
        token_ids = index.propose(num_tokens).token_ids
        return Draft(token_ids, one_hot_probs(token_ids, sequence.request.sampling))

    def close(self) -> None:
        if self._index is not None and len(self._index) > self._num_prompt_tokens:
            self._index.finish(self._num_prompt_tokens)
        self._forget()

    def _settled(self, sequence: Sequence, now_s: float) -> Draft | None:
        if not self._read(sequence, now_s) or self._asked is None:
            return None
        (num_tokens, asked_s), self._asked = self._asked, None
        if self._index is None:
            return Draft(elapsed_s=now_s - asked_s, problem=self._absence)
        found = self._index.propose(num_tokens, self._tree)
        probs = one_hot_probs(found.token_ids, sequence.request.sampling)
        return Draft(found.token_ids, probs, found.parents, elapsed_s=now_s - asked_s)

    def _read(self, sequence: Sequence, now_s: float) -> bool:
        """Index one slice; whether that was the last."""
        index = self._index_with_room(sequence)
        if index is None:
            return True
        index.append(sequence.tokens_since(len(index))[:_TOKENS_PER_SLICE])
        if len(index) < sequence.length:
            self._out.append(Wake(now_s))
            return False
        return True

    def _index_with_room(self, sequence: Sequence) -> LookupIndex | None:
        """The index, if all committed tokens may be in it: a part of them would take memory and find little."""
        num_missing = sequence.length - self._num_taken
        if self._index is None or num_missing <= 0:
            return self._index
        if self._budget.take(num_missing):
            self._num_taken += num_missing
            return self._index
        self._budget.num_refused += 1
        self._absence = (
            f"the lookups of all requests hold {self._budget.num_tokens} tokens, and this one's {sequence.length} "
            f"would make more than {self._budget.max_tokens} (orchestrator.speculation.lookup_tokens)"
        )
        self._forget()
        return None

    def _forget(self) -> None:
        self._index = None
        self._budget.give_back(self._num_taken)
        self._num_taken = 0
