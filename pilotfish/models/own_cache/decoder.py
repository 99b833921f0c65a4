"""A causal LM that transformers computes with its own attention and cache, one text a forward.

The pool holds the tokens of each slot and no keys: a sequence's text is read out of its blocks, and the cache that
transformers made of it is found by its first block. A cache that is not there any more is computed again, and a text
that begins goes on with none: what another client sent shows in no time, and changes no bit.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.attention.paged import SequenceSlice, slots_of
from pilotfish.models.decoder import StepInput
from pilotfish.models.own_cache.model_state import StatefulModel, is_cuttable, num_bytes
from pilotfish.models.own_cache.text_cache import Rows, TextCache
from pilotfish.types import BLOCK_SIZE


class TokenPool:
    """The token of each slot."""

    def __init__(self, num_blocks: int, bytes_per_token: int) -> None:
        """bytes_per_token: what transformers' caches take for one."""
        self.num_blocks = num_blocks
        self.token_ids = array("q", bytes(8 * num_blocks * BLOCK_SIZE))
        self.num_bytes = num_blocks * BLOCK_SIZE * bytes_per_token


class OwnCacheDecoder:
    """See Decoder. No hidden states can be captured. Blocks that several sequences share are computed for each."""

    name = "transformers' own cache"
    features: Tensor
    """Never set."""
    last_hidden: Tensor
    """Never set."""

    def __init__(self, model: PreTrainedModel, *, rows: Rows, max_context_tokens: int, max_texts: int) -> None:
        """max_texts: caches that are kept, and no more tokens of them than the pool has."""
        self.vocab_size: int = model.config.get_text_config().vocab_size
        self.max_context_tokens = max_context_tokens
        self.dtype: torch.dtype = model.dtype
        self.device: torch.device = model.device
        self.rows = rows
        self._model = StatefulModel(model)
        self._max_texts = max_texts
        self._pool: TokenPool | None = None
        self._caches: OrderedDict[int, TextCache] = OrderedDict()  # by first block, least recently used first

    @cached_property
    def is_cuttable(self) -> bool:
        """Whether a text's cache can be cut back."""
        return is_cuttable(self._example(3).state)

    @property
    def num_kept_tokens(self) -> int:
        """Tokens that all caches keep."""
        return sum(map(len, self._caches.values()))

    def capture(self, layers: Sequence[int]) -> None:
        raise UnsupportedModelError(
            f"hidden states of layers {list(layers)} are wanted, which a model with transformers' own cache does not "
            "give: take a drafter that needs none of them (target.drafter.proposer, draft.proposer), as docs/models.md "
            "says"
        )

    def allocate(self, num_blocks: int) -> TokenPool:
        self._caches.clear()
        short, long = (num_bytes(self._example(length).state) for length in (BLOCK_SIZE, 2 * BLOCK_SIZE))
        self._pool = TokenPool(num_blocks, max(0, long - short) // BLOCK_SIZE)
        return self._pool

    def move_kv(self, moves: Sequence[tuple[int, int]]) -> None:
        if self._pool is not None:
            token_ids = self._pool.token_ids
            moved = [token_ids[source] for source, _ in moves]
            for (_, target), token_id in zip(moves, moved, strict=True):
                token_ids[target] = token_id

    def forward(self, step: StepInput) -> Tensor:
        if self._pool is None:
            raise RuntimeError("allocate a KV pool before the first forward")
        wanted = set(step.logit_rows)
        logits: list[Tensor] = []
        for part in step.slices:
            rows = range(part.first_row, part.first_row + part.num_rows)
            for slot, row in zip(slots_of(part.block_ids, part.places), rows, strict=True):
                self._pool.token_ids[slot] = step.token_ids[row]
            logits.extend(self._logits(part, [row - part.first_row for row in rows if row in wanted]))
            self._forget_old()
        return torch.stack(logits) if logits else torch.empty(0, self.vocab_size, dtype=self.dtype, device=self.device)

    def _logits(self, part: SequenceSlice, wanted: Sequence[int]) -> list[Tensor]:
        """Logits [V] of the wanted rows of a slice, whose tokens are in the pool."""
        key = part.block_ids[0]
        cache = self._caches.pop(key, None)
        if cache is None or part.first_position == 0:
            cache = TextCache(self._model, self.rows, self.max_context_tokens)
        logits = list(self._computed(cache, part, wanted))
        self._caches[key] = cache  # a step that fails leaves none behind: nobody knows what it holds
        return logits

    def _computed(self, cache: TextCache, part: SequenceSlice, wanted: Sequence[int]) -> Iterator[Tensor]:
        assert self._pool is not None
        text = [self._pool.token_ids[slot] for slot in slots_of(part.block_ids, range(part.places.stop))]
        if not wanted:
            # Where rows are computed singly a prompt's pieces wait for the last one: they are read together.
            if self.rows is not Rows.SINGLE and part.tree is None:
                cache.logits(text, 0)
        elif part.tree is None:
            logits = cache.logits(text, part.num_rows - wanted[0])
            yield from (logits[row - wanted[0]] for row in wanted)
        else:
            by_place: dict[int, Tensor] = {}
            first = min(part.first_position + wanted[0], part.root_position)
            for places in _paths(part):
                new = [place for place in places if place >= first]
                logits = cache.logits([text[place] for place in places], len(new))
                by_place |= dict(zip(new, logits, strict=True))
            yield from (by_place[part.first_position + row] for row in wanted)

    def _forget_old(self) -> None:
        """Keep no more than there is room for."""
        assert self._pool is not None
        room = self._pool.num_blocks * BLOCK_SIZE
        while len(self._caches) > self._max_texts or self.num_kept_tokens > room:
            self._caches.popitem(last=False)

    def _example(self, num_tokens: int) -> TextCache:
        """A text's cache, as a step leaves it that follows another one."""
        cache = TextCache(self._model, self.rows, self.max_context_tokens)
        for length in (2, num_tokens):
            cache.logits([0] * min(length, self.max_context_tokens), 1)
        return cache


def _paths(part: SequenceSlice) -> Iterator[list[int]]:
    """Places of the text to each leaf of a slice's tree, by which all nodes are passed; to the root without nodes."""
    tree, root = part.tree, part.root_position
    assert tree is not None
    before = list(range(root + 1))
    for path, children in zip(tree.paths, tree.children, strict=True):
        if not children:
            yield [*before, *(root + 1 + node for node in path)]
