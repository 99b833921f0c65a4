"""Lookups in this process: a drafter that needs no replica."""

from __future__ import annotations

from orchestrator.answers.sequence import Sequence
from orchestrator.rounds.commands import Command, Event, Wake, Woken
from orchestrator.rounds.draft import NO_DRAFT, Draft
from orchestrator.rounds.drafter_clients.drafter_client import DrafterClient
from orchestrator.rounds.drafter_clients.lookup_budget import LookupBudget
from pilotfish.speculation.lookup.index import LookupDraft, one_hot_probs
from pilotfish.speculation.lookup.sequence import SequenceLookup
from pilotfish.types import TreeRequest

_TOKENS_PER_SLICE = 128
"""Tokens indexed before others get their turn: under a millisecond."""


class LookupDrafter(DrafterClient):
    """One per request. Reads a long prompt in slices: each asks to be woken for the next."""

    has_lookup = True

    def __init__(
        self,
        lookup: SequenceLookup,
        budget: LookupBudget,
        out: list[Command],
        *,
        tree: TreeRequest | None = None,
    ) -> None:
        """Owns `lookup`, which is empty. budget: shared by all requests. tree: how drafts may branch; None: chains."""
        self._lookup: SequenceLookup | None = lookup
        """Its tokens are taken from the budget; None: it was closed, or found no room."""
        self._budget = budget
        self._absence = ""
        self._out = out
        self._tree = tree
        self._asked: tuple[int, float] | None = None
        """The draft tokens that are waited for, and since when."""

    @property
    def unavailable_reason(self) -> str:
        return self._absence

    def prepare(self, sequence: Sequence, now_s: float) -> None:
        self._read(sequence, now_s)

    def ask(self, sequence: Sequence, num_tokens: int, now_s: float) -> Draft | None:
        self._asked = num_tokens, now_s
        return self._settled(sequence, now_s)

    def hear(self, event: Event, sequence: Sequence, now_s: float) -> Draft | None:
        is_woken = isinstance(event, Woken) and event.alarm == "reading"
        return self._settled(sequence, now_s) if is_woken else None

    def glance(self, sequence: Sequence, num_tokens: int) -> Draft:
        return self.promise(sequence, num_tokens, 0.0, is_chain=True) if num_tokens else NO_DRAFT

    def promise(self, sequence: Sequence, num_tokens: int, min_accepted_tokens: float, *, is_chain: bool) -> Draft:
        """A draft that promises so many accepted tokens and costs next to nothing; else an empty one.

        Where much is to be read, that is done first.
        """
        lookup = self._with_all_of(sequence)
        if lookup is None:
            return NO_DRAFT
        if lookup.num_waiting > _TOKENS_PER_SLICE:
            self._out.append(Wake(0.0, "reading"))
            return NO_DRAFT
        found = lookup.draft(num_tokens, None if is_chain else self._tree)
        return self._draft(found, sequence) if found.promises(min_accepted_tokens) else NO_DRAFT

    def close(self) -> None:
        if self._lookup is not None:
            self._lookup.finish()
        self._forget()

    def _settled(self, sequence: Sequence, now_s: float) -> Draft | None:
        if not self._read(sequence, now_s) or self._asked is None:
            return None
        (num_tokens, asked_s), self._asked = self._asked, None
        if self._lookup is None:
            return Draft(elapsed_s=now_s - asked_s, problem=self._absence)
        return self._draft(self._lookup.draft(num_tokens, self._tree), sequence, now_s - asked_s)

    @staticmethod
    def _draft(found: LookupDraft, sequence: Sequence, elapsed_s: float = 0.0) -> Draft:
        probs = one_hot_probs(found.token_ids, sequence.request.sampling)
        return Draft(found.token_ids, probs, found.parents, elapsed_s=elapsed_s)

    def _read(self, sequence: Sequence, now_s: float) -> bool:
        """Index one slice; whether that was the last."""
        lookup = self._with_all_of(sequence)
        if lookup is not None:
            lookup.index_some(_TOKENS_PER_SLICE)
            if lookup.num_waiting:
                self._out.append(Wake(now_s, "reading"))
                return False
        return True

    def _with_all_of(self, sequence: Sequence) -> SequenceLookup | None:
        """The lookup with all committed tokens; None where there is no room for all: a part of them would take memory
        and find little."""
        if self._lookup is not None and sequence.length > self._lookup.length:
            missing = sequence.tokens_since(self._lookup.length)
            if self._budget.take(len(missing)):
                self._lookup.replace_from(self._lookup.length, missing)
            else:
                self._budget.num_refused += 1
                self._absence = (
                    f"the lookups of all requests hold {self._budget.num_tokens} tokens, and this one's "
                    f"{sequence.length} would make more than {self._budget.max_tokens} "
                    "(orchestrator.speculation.lookup_tokens)"
                )
                self._forget()
        return self._lookup

    def _forget(self) -> None:
        lookup, self._lookup = self._lookup, None
        if lookup is not None:
            self._budget.give_back(lookup.length)
