"""One text and what a model keeps of it.

A step states the whole text: the cache is cut back to the tokens that both have in common, and the others are computed.
What cannot be cut is copied before several logits are wanted, as those are drafts', which may be rejected; a step that
takes some of them back begins at the copy, and computes the accepted ones again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import torch
from torch import Tensor

from pilotfish.models.own_cache.model_state import State, StatefulModel, copied, cut, is_cuttable
from pilotfish.speculation.common_prefix import num_common_tokens

TILE = 16
"""Tokens of a tile, see Rows."""


class Rows(Enum):
    """How many tokens of a text a forward computes."""

    ANY = "any"
    """The number of tokens that is asked for."""
    TILES = "tiles"
    """Tokens 0 to 15, 16 to 31 and so on together, whichever of them are asked for; those that are not there yet are
    made up, and taken back. A token's logits are then computed in the same shape whatever the step: bit by bit the
    same with drafts and without. The cache must be one that can be cut."""
    SINGLE = "single"
    """One, but for a text's beginning: for models that go on from a cache by single tokens only, and for those whose
    logits depend on the other rows of a forward. Drafts do not pay then."""


@dataclass
class _Kept:
    """The cache of a text."""

    token_ids: list[int] = field(default_factory=list)
    state: State = field(default_factory=dict)


class TextCache:
    """See the module."""

    def __init__(self, model: StatefulModel, rows: Rows, max_tokens: int) -> None:
        """max_tokens: positions that the model knows."""
        self._model, self._rows, self._max_tokens = model, rows, max_tokens
        self._now = _Kept(state=model.new_state())
        self._copy: _Kept | None = None

    def __len__(self) -> int:
        return len(self._now.token_ids)

    @property
    def state(self) -> State:
        return self._now.state

    def logits(self, text: Sequence[int], num_wanted: int) -> Tensor:
        """Logits [num_wanted, V] of the text's last tokens; the cache holds the text then."""
        if self._rows is Rows.TILES:
            return self._tiled(text, num_wanted)
        first = len(text) - num_wanted
        self._cut_back(text, min(first, len(text) - 1))
        if self._rows is Rows.ANY and is_cuttable(self.state):
            return self._extend(text, len(text), num_wanted)
        is_single = self._rows is Rows.SINGLE
        before = range(len(self) + 1, first + 1) if is_single and len(self) else [first]
        parts = [self._extend(text, end, 0) for end in before if end > len(self)]
        if num_wanted > 1:
            self._copy = _Kept(list(self._now.token_ids), copied(self.state))
        if is_single:
            parts += [self._extend(text, end, 1) for end in range(first + 1, len(text) + 1)]
        elif num_wanted:
            parts.append(self._extend(text, len(text), num_wanted))
        return torch.cat(parts)

    def _tiled(self, text: Sequence[int], num_wanted: int) -> Tensor:
        self._cut_back(text, min(len(text) - num_wanted, len(text) - 1))
        self._cut_back(text, len(self) // TILE * TILE)
        parts = []
        for start in range(len(self), len(text), TILE):
            size = min(TILE, self._max_tokens - start)
            piece = list(text[start : start + size])
            made_up = [0] * (size - len(piece))
            parts.append(self._extend([*text[:start], *piece, *made_up], start + size, size)[: len(piece)])
            self._cut_back(text, start + len(piece))
        return torch.cat(parts)[sum(map(len, parts)) - num_wanted :]

    def _extend(self, text: Sequence[int], end: int, num_logits: int) -> Tensor:
        """Go on with the text up to end; logits [num_logits, V] of its last tokens."""
        now = self._now
        logits, now.state = self._model.forward(text[:end], len(self), now.state, max(1, num_logits))
        now.token_ids = list(text[:end]) if now.state else []
        return logits[: num_logits or 0]

    def _cut_back(self, text: Sequence[int], length: int) -> None:
        """Hold at most the text's first tokens, so many, and nothing else."""
        now = self._now
        common = min(num_common_tokens(now.token_ids, text), length)
        if common == len(self):
            return
        if is_cuttable(now.state):
            cut(now.state, len(self) - common)
            del now.token_ids[common:]
            return
        kept = self._copy
        if kept is not None and kept.token_ids == list(text[: min(len(kept.token_ids), length)]):
            self._now = _Kept(list(kept.token_ids), copied(kept.state))
        else:
            self._now = _Kept(state=self._model.new_state())
            self._copy = None
