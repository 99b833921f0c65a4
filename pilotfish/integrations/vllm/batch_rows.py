"""Which row of vLLM's batch continues which row of its step before: rows move and have no ids, so tokens decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

TokenIds = NDArray[Any]
"""An int32 array: vLLM's own, or a part of it."""

_MAX_ABSENT_STEPS = 8
"""Steps after which an absent row has ended, or was preempted: vLLM takes a request out of the batch for a step or
two while others' prompts are read."""
_MAX_MISSED_TOKENS = 256
"""A row may have grown by so many tokens since it was seen: near the model's length vLLM asks for no drafts."""


@dataclass(frozen=True, slots=True)
class RowStep:
    """One row of a step, as the drafter gets it."""

    row_id: int
    """Id of the row for as long as it lives, never used before."""
    new_token_ids: tuple[int, ...]
    """The committed tokens that are new since the row was last seen; of a new row all."""
    num_prompt_tokens: int
    """A new row's tokens but those that vLLM chose in this step; 0: the row is not new."""
    num_sampled_tokens: int
    """Tokens that vLLM committed in this step; 0: it is still reading the prompt and takes no draft."""


@dataclass(frozen=True, slots=True)
class BatchStep:
    """One step of vLLM's batch."""

    rows: tuple[RowStep, ...]
    """Rows in vLLM's order."""
    followed_row_ids: frozenset[int]
    """Ids of these rows, and of those that may come back. All others have ended."""


class _KnownRow:
    """A row's tokens as of the last step that it was in."""

    __slots__ = ("_token_ids", "length", "num_absent_steps", "row_id")

    def __init__(self, row_id: int, token_ids: TokenIds) -> None:
        self.row_id = row_id
        self.num_absent_steps = 0
        self.length = 0
        self._token_ids: TokenIds = np.empty(max(256, 2 * len(token_ids)), dtype=np.int32)
        self.extend(token_ids)

    def extend(self, token_ids: TokenIds) -> None:
        """token_ids: all of the row's tokens; the first `length` are known."""
        if len(token_ids) > len(self._token_ids):
            grown: TokenIds = np.empty(2 * len(token_ids), dtype=np.int32)
            grown[: self.length] = self._token_ids[: self.length]
            self._token_ids = grown
        self._token_ids[self.length : len(token_ids)] = token_ids[self.length :]
        self.length = len(token_ids)

    def is_continued_by(self, token_ids: TokenIds, max_new_tokens: int) -> bool:
        """Whether these tokens are this row's, and at most so many more."""
        if not 0 <= len(token_ids) - self.length <= max_new_tokens:
            return False
        # A whole row of 8,192 tokens takes 3 us, and a wrong row would draft badly for its whole life.
        return np.array_equal(self._token_ids[: self.length], token_ids[: self.length])


class BatchRows:
    """Follows the rows from step to step. Pure bookkeeping: one thread, no clock, nothing sent."""

    def __init__(self) -> None:
        self._ids = count(1)
        self._slots: list[_KnownRow] = []
        """The rows of the last step, in vLLM's order."""
        self._absent: list[_KnownRow] = []

    def update(
        self, sampled_token_ids: Sequence[Sequence[int]], num_tokens: Sequence[int] | TokenIds, token_ids: TokenIds
    ) -> BatchStep:
        """vLLM's arguments of `propose`, [B] each: what the step added to the rows, how many tokens they have with it,
        and all of these (token_ids: [B or more, context]; tokens beyond a row's number are not read)."""
        rows = [token_ids[slot, : int(num_tokens[slot])] for slot in range(len(sampled_token_ids))]
        known = self._match(rows, sampled_token_ids)
        steps = []
        slots = []
        for row, sampled, before in zip(rows, sampled_token_ids, known, strict=True):
            step, after = self._step(row, len(sampled), before)
            steps.append(step)
            slots.append(after)
        self._retire(slots)
        self._slots = slots
        return BatchStep(tuple(steps), frozenset(known.row_id for known in (*slots, *self._absent)))

    def forget(self) -> None:
        """Begin anew: to the next step all rows are new, and those that were known have ended."""
        self._slots = []
        self._absent = []

    def _match(self, rows: Sequence[TokenIds], sampled: Sequence[Sequence[int]]) -> list[_KnownRow | None]:
        """The known row that each row continues, each at most once. Where rows hold equal tokens any will do."""
        matched: list[_KnownRow | None] = [None] * len(rows)
        for slot, known in enumerate(self._slots[: len(rows)]):
            if known.is_continued_by(rows[slot], len(sampled[slot])):
                matched[slot] = known
        taken = {known.row_id for known in matched if known is not None}
        left = [known for known in (*self._slots, *self._absent) if known.row_id not in taken]
        for slot, row in enumerate(rows):
            if matched[slot] is None and left:
                candidates = [known for known in left if known.is_continued_by(row, _MAX_MISSED_TOKENS)]
                if candidates:
                    longest = max(candidates, key=lambda known: known.length)
                    matched[slot] = longest
                    left.remove(longest)
        return matched

    def _step(self, row: TokenIds, num_sampled: int, known: _KnownRow | None) -> tuple[RowStep, _KnownRow]:
        if known is None:
            known = _KnownRow(next(self._ids), row)
            tokens = tuple(row.tolist())
            return RowStep(known.row_id, tokens, max(1, len(row) - num_sampled), num_sampled), known
        new = tuple(row[known.length :].tolist())
        known.extend(row)
        return RowStep(known.row_id, new, 0, num_sampled), known

    def _retire(self, slots: Sequence[_KnownRow]) -> None:
        """Count the absence of those that are not in `slots`, and forget those that were away too long."""
        present = {known.row_id for known in slots}
        self._absent = [known for known in (*self._slots, *self._absent) if known.row_id not in present]
        for known in self._absent:
            known.num_absent_steps += 1
        for known in slots:
            known.num_absent_steps = 0
        self._absent = [known for known in self._absent if known.num_absent_steps <= _MAX_ABSENT_STEPS]
