"""The EAGLE-3 head of a target, in the target's engine.

The head's keys and values follow the target's: slot q holds the row of the token at q, which takes the
feature of q - 1. Rows wait until a block is full or a draft is wanted, so that a sequence that does not
speculate pays for one forward of the head every BLOCK_SIZE tokens. The feature of the last position so
taken in is kept by block: a prefix found in the cache goes on from there.

Legend: T rows, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from pilotfish.engine.chain_growth import grow_chains
from pilotfish.engine.self_drafting import KeptRows
from pilotfish.engine.sequence import NO_DRAFTS, Drafts
from pilotfish.models.attention import BLOCK_SIZE, SequenceSlice
from pilotfish.models.decoder import Decoder
from pilotfish.models.eagle3.runtime import FIRST_KEY, FeatureHead, HeadOutput, HeadStep
from pilotfish.speculation.draft_vocabulary import DraftVocabulary


@dataclass(slots=True)
class _Pending:
    """Features that the head has not seen: of the positions from first_position on."""

    first_position: int
    features: list[Tensor]
    """[n, 3H] each."""

    @property
    def end_position(self) -> int:
        return self.first_position + sum(map(len, self.features))


@dataclass(frozen=True, slots=True)
class _HeadRows:
    """Consecutive rows of one sequence."""

    first_position: int
    token_ids: Sequence[int]
    states: Tensor
    """[T, 3H] or [T, H]"""
    block_ids: Sequence[int]


class Eagle3Drafter:
    """See Draftser. Its decoder captures the layers that the head was trained on."""

    name = "eagle3"

    def __init__(self, decoder: Decoder, head: FeatureHead, *, top_m: int) -> None:
        self._decoder = decoder
        self._head = head
        self._vocabulary = DraftVocabulary(head.draft_token_ids, decoder.vocab_size)
        self._top_m = top_m
        self._last_features = torch.empty(0)
        """[num_blocks, 3H]: of the last position in each block that the head has taken in."""

    def allocate(self, num_blocks: int) -> int:
        self._last_features = torch.zeros(
            num_blocks, self._head.feature_width, dtype=self._decoder.dtype, device=self._decoder.device
        )
        return self._head.allocate(num_blocks).num_bytes + self._last_features.nbytes

    @torch.inference_mode()
    def follow(self, kept: Sequence[KeptRows]) -> list[Drafts]:
        drafts = [NO_DRAFTS] * len(kept)
        due = [index for index, rows in enumerate(kept) if self._keep_features(rows) or rows.num_draft_tokens]
        if not due:
            return drafts
        head_rows = [self._take_in(kept[index]) for index in due]
        ends = accumulate(len(rows.token_ids) for rows in head_rows)
        drafting = [(index, end - 1) for index, end in zip(due, ends, strict=True) if kept[index].num_draft_tokens]
        output = self._forward(head_rows, [last_row for _, last_row in drafting])
        if drafting:
            chains = self._grow([kept[index] for index, _ in drafting], output, [last_row for _, last_row in drafting])
            for (index, _), chain in zip(drafting, chains, strict=True):
                drafts[index] = chain
        return drafts

    def _keep_features(self, rows: KeptRows) -> bool:
        """Take the rows' features from the decoder. Whether they fill a block."""
        sequence = rows.sequence
        features = self._decoder.features[list(rows.step_rows)]
        pending = sequence.drafter_state
        if isinstance(pending, _Pending) and pending.end_position == rows.first_position:
            pending.features.append(features)
        else:
            pending = sequence.drafter_state = _Pending(rows.first_position, [features])
        return pending.first_position // BLOCK_SIZE < pending.end_position // BLOCK_SIZE

    def _take_in(self, rows: KeptRows) -> _HeadRows:
        """Rows for all pending features; with a draft wanted also the one of the last token."""
        sequence, pending = rows.sequence, rows.sequence.drafter_state
        assert isinstance(pending, _Pending)
        first, end = pending.first_position, pending.end_position
        features = torch.cat(pending.features)
        states = features
        if first > 0:
            before = self._last_features[sequence.block_ids[(first - 1) // BLOCK_SIZE]]
            states = torch.cat((before.unsqueeze(0), features))
        blocks = range(first // BLOCK_SIZE, (end - 1) // BLOCK_SIZE + 1)
        last_rows = [min((block + 1) * BLOCK_SIZE, end) - 1 - first for block in blocks]
        self._last_features[[sequence.block_ids[block] for block in blocks]] = features[last_rows]
        sequence.drafter_state = _Pending(end, [])
        first = max(first, FIRST_KEY)
        token_ids = sequence.tokens[first : end + 1 if rows.num_draft_tokens else end]
        return _HeadRows(first, token_ids, states[: len(token_ids)], sequence.block_ids)

    def _grow(self, rows: Sequence[KeptRows], output: HeadOutput, last_rows: Sequence[int]) -> list[Drafts]:
        states = output.hidden[list(last_rows)]

        def next_logits(active: Sequence[int], token_ids: Sequence[int], positions: Sequence[int]) -> Tensor:
            head_rows = [
                _HeadRows(position, [token_id], states[index : index + 1], rows[index].sequence.block_ids)
                for index, token_id, position in zip(active, token_ids, positions, strict=True)
            ]
            output = self._forward(head_rows, range(len(active)))
            states[list(active)] = output.hidden
            return output.logits

        return grow_chains(rows, output.logits, next_logits, self._vocabulary, top_m=self._top_m)

    def _forward(self, head_rows: Sequence[_HeadRows], logit_rows: Sequence[int]) -> HeadOutput:
        token_ids: list[int] = []
        positions: list[int] = []
        slices: list[SequenceSlice] = []
        for rows in head_rows:
            num_rows = len(rows.token_ids)
            slices.append(SequenceSlice(len(token_ids), num_rows, rows.first_position, rows.block_ids))
            token_ids.extend(rows.token_ids)
            positions.extend(range(rows.first_position, rows.first_position + num_rows))
        states = torch.cat([rows.states for rows in head_rows])
        return self._head.forward(HeadStep(token_ids, positions, slices, logit_rows, states))
