"""Conversations as compact files, and packed into rows of one length.

Shapes: R rows, T tokens of a row, B rows of a step, M anchors: positions of a row that a step learns drafts from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pilotfish.models.feature_head import FIRST_KEY
from pilotfish.training.data.conversations import Conversation

_OPEN_ROWS = 32
"""Rows that the next conversation may go into: enough to fill them to 99 %."""


def write_tokens(conversations: Sequence[Conversation], path: Path) -> None:
    """A compressed file of all tokens; ids below 65,536."""
    np.savez_compressed(
        path,
        token_ids=np.concatenate([np.array(each.token_ids, dtype=np.uint16) for each in conversations]),
        lengths=np.array([len(each.token_ids) for each in conversations], dtype=np.int32),
        prompt_lens=np.array([each.prompt_len for each in conversations], dtype=np.int32),
    )


def read_tokens(path: Path) -> list[Conversation]:
    """What write_tokens wrote; the token ids are arrays of int64."""
    with np.load(path) as file:
        token_ids, lengths, prompt_lens = file["token_ids"].astype(np.int64), file["lengths"], file["prompt_lens"]
    parts = np.split(token_ids, np.cumsum(lengths)[:-1])
    return [Conversation(int(size), part) for size, part in zip(prompt_lens, parts, strict=True)]  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Rows:
    """Packed conversations, all [R, T]."""

    token_ids: Tensor
    """int64; 0 behind the last conversation of a row."""
    documents: Tensor
    """int64: which of the row's conversations a token belongs to; -1 for none."""
    positions: Tensor
    """int64, within the conversation."""
    num_after: Tensor
    """int64: tokens of the conversation that follow."""
    decides: Tensor
    """bool: whether what the target says here is a token of the answer."""

    def __len__(self) -> int:
        return len(self.token_ids)

    def __getitem__(self, which: slice | Tensor) -> Rows:
        return Rows(*(getattr(self, field.name)[which] for field in fields(self)))

    def to(self, device: torch.device) -> Rows:
        return Rows(*(getattr(self, field.name).to(device, non_blocking=True) for field in fields(self)))

    @property
    def sees(self) -> Tensor:
        """bool [R, T, T]: whether a query may look at a key, in a causal model."""
        same = self.documents.unsqueeze(2) == self.documents.unsqueeze(1)
        return same.tril()

    @property
    def sees_states(self) -> Tensor:
        """As `sees`, for a head: the first token of a conversation has no state before it, and only sees itself."""
        is_key = (self.positions >= FIRST_KEY).unsqueeze(1)
        itself = torch.eye(self.token_ids.shape[1], dtype=torch.bool, device=is_key.device)
        return (self.sees & is_key) | itself

    @property
    def starts_draft(self) -> Tensor:
        """bool [R, T]: positions from which a draft of answer tokens starts."""
        return self.decides & (self.positions >= FIRST_KEY)

    def anchors(self, number: int) -> tuple[Tensor, Tensor]:
        """int64 and bool [R, M]: random positions that start a draft, at most so many of a row, and which are such."""
        noise = torch.rand(self.token_ids.shape, device=self.token_ids.device) * self.starts_draft
        score, at = noise.topk(number, dim=1)
        return at, score > 0


def pack(conversations: Iterable[Conversation], num_tokens: int) -> Rows:
    """Rows of num_tokens, in the conversations' order; longer ones are cut at their end."""
    filled: list[list[Conversation]] = []
    room: list[int] = []
    for conversation in conversations:
        size = min(len(conversation.token_ids), num_tokens)
        first = max(0, len(room) - _OPEN_ROWS)
        row = next((at for at in range(first, len(room)) if room[at] >= size), len(room))
        if row == len(room):
            filled.append([])
            room.append(num_tokens)
        filled[row].append(conversation)
        room[row] -= size
    return _rows(filled, num_tokens)


def _rows(filled: Sequence[Sequence[Conversation]], num_tokens: int) -> Rows:
    shape = (len(filled), num_tokens)
    token_ids, documents = np.zeros(shape, np.int64), np.full(shape, -1)
    positions, num_after, decides = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, bool)
    for row, conversations in enumerate(filled):
        start = 0
        for number, conversation in enumerate(conversations):
            size = min(len(conversation.token_ids), num_tokens)
            part = np.s_[row, start : start + size]
            token_ids[part] = conversation.token_ids[:size]
            documents[part] = number
            positions[part] = np.arange(size)
            num_after[part] = np.arange(size)[::-1]
            decides[row, start + conversation.prompt_len - 1 : start + size] = True
            start += size
    return Rows(*(torch.from_numpy(each) for each in (token_ids, documents, positions, num_after, decides)))
