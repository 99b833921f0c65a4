"""Penalties, logit bias, grammar, allowed_token_ids, min_tokens and bad_words: what changes logits before temperature
and truncation do.

Shapes: R rows, V vocabulary, E (row, token) pairs.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec
import torch
from torch import Tensor

from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.constraints import TokenConstraint, both, without_forbidden
from pilotfish.speculation.sampling.history import CountTable, TokenHistory
from pilotfish.speculation.sampling.token_lists import MAX_LOGIT, EntryTable, TokenLists
from pilotfish.speculation.sampling.transfer import moved, to_device
from pilotfish.types import SamplingParams


class Row(msgspec.Struct, frozen=True):
    """What shapes the distribution of one row besides its logits."""

    sampling: SamplingParams
    position: int
    """Absolute index (prompt + output) of the token that the row decides."""
    history: TokenHistory | None
    """Prompt and output before the drafts; None where SamplingParams.needs_history is not so."""
    draft_token_ids: Sequence[int] = ()
    """Drafts between the history and the position."""
    constraint: TokenConstraint | None = None
    """The grammar after prompt and output before the drafts; None: the row is free."""
    token_lists: TokenLists | None = None
    """Token lists of the parameters; None: they are made for this row."""
    draft_start: int = 0
    """Position where the draft begins that a drafter's row continues."""

    @property
    def lists(self) -> TokenLists:
        return TokenLists(self.sampling) if self.token_lists is None else self.token_lists


def needs_adjustment(sampling: SamplingParams) -> bool:
    """Whether anything but temperature and truncation changes the logits."""
    is_narrowed = bool(sampling.allowed_token_ids) or sampling.grammar is not None
    return is_narrowed or sampling.needs_history or bool(sampling.logit_bias)


def adjust(blocks: BlockedLogits, rows: Sequence[Row]) -> BlockedLogits:
    """Penalties, logit bias, grammar and allowed_token_ids, then min_tokens and bad_words, on a copy; the input itself
    when no row has any.

    Raises ValueError for a row with penalties and no history.
    """
    if any(row.sampling.has_penalties or row.sampling.logit_bias for row in rows):
        logits = blocks.logits.clone()
        _apply_penalties_(logits, rows)
        _apply_bias_(logits, rows)
        blocks = BlockedLogits.of(logits)
    return _forbid(_constrain(blocks, rows), rows)


def _constrain(blocks: BlockedLogits, rows: Sequence[Row]) -> BlockedLogits:
    masks = [None if row.constraint is None else row.constraint.allowed(row.draft_token_ids) for row in rows]
    if any(row.sampling.allowed_token_ids for row in rows):
        num_bytes = next((len(mask) for mask in masks if mask is not None), -(-blocks.vocab_size // 8))
        masks = [both(mask, _allowed_mask(row, num_bytes)) for mask, row in zip(masks, rows, strict=True)]
    if all(mask is None for mask in masks):
        return blocks
    return _narrowed(blocks, without_forbidden(blocks.logits, masks))


def _allowed_mask(row: Row, num_bytes: int) -> bytes | None:
    return row.lists.allowed_mask(num_bytes) if row.sampling.allowed_token_ids else None


def _forbid(blocks: BlockedLogits, rows: Sequence[Row]) -> BlockedLogits:
    """An answer that its grammar has ended ends, whatever min_tokens says."""
    table = EntryTable()
    for index, row in enumerate(rows):
        if row.history is not None and (row.sampling.min_tokens or row.sampling.bad_words):
            row.lists.add_forbidden_to(table, index, row.history, row.draft_token_ids)
    if not table.rows:
        return blocks
    entries = torch.stack((_tensor(table.rows, torch.int64), _tensor(table.token_ids, torch.int64)))  # [2, E]
    entries = entries[:, entries[1] < blocks.vocab_size]
    entry_rows, token_ids = moved(entries, blocks.logits.device)
    logits = blocks.logits.clone()
    logits[entry_rows, token_ids] = -torch.inf
    return _narrowed(blocks, logits)


def _narrowed(blocks: BlockedLogits, logits: Tensor) -> BlockedLogits:
    """The logits [R, V], some of them -inf now; a row that has nothing left stays as it was in blocks: a drafter may
    not know any of the allowed tokens."""
    narrowed = BlockedLogits.of(logits)
    is_empty = narrowed.max() == -torch.inf  # [R, 1]
    if not is_empty.any():
        return narrowed
    return BlockedLogits(
        torch.where(is_empty, blocks.logits, logits), torch.where(is_empty, blocks.block_max, narrowed.block_max)
    )


def _apply_penalties_(logits: Tensor, rows: Sequence[Row]) -> None:
    table = CountTable()
    for index, row in enumerate(rows):
        if row.sampling.has_penalties:
            if row.history is None:
                raise ValueError(f"the row at position {row.position} has penalties but no token history")
            row.history.add_to(table, index, row.draft_token_ids)
    if not table.rows:
        return
    device = logits.device
    entry_rows = moved(_tensor(table.rows, torch.int64), device)  # [E]
    token_ids = moved(_tensor(table.token_ids, torch.int64), device)  # [E]
    counts = moved(_tensor(table.output_counts, torch.int64), device)  # [E]
    samplings = [row.sampling for row in rows]
    parameters = to_device(
        [(s.repetition_penalty, s.presence_penalty, s.frequency_penalty) for s in samplings], torch.float32, device
    )
    repetition, presence, frequency = parameters[entry_rows].unbind(-1)
    values = logits[entry_rows, token_ids]
    values = torch.where(values > 0, values / repetition, values * repetition)
    values -= presence * (counts > 0) + frequency * counts
    logits[entry_rows, token_ids] = values.clamp_(-MAX_LOGIT, MAX_LOGIT)


def _apply_bias_(logits: Tensor, rows: Sequence[Row]) -> None:
    table, biases = EntryTable(), array("f")
    for index, row in enumerate(rows):
        if row.sampling.logit_bias:
            lists = row.lists
            table.add(index, lists.biased_token_ids)
            biases.extend(lists.bias_values)
    if not biases:
        return
    device = logits.device
    places = (moved(_tensor(table.rows, torch.int64), device), moved(_tensor(table.token_ids, torch.int64), device))
    # Two large finite addends make an infinite one.
    values = logits[places] + moved(_tensor(biases, torch.float32), device)
    logits[places] = values.clamp_(-MAX_LOGIT, MAX_LOGIT)


def _tensor(values: array[int] | array[float], dtype: torch.dtype) -> Tensor:
    """A tensor on the values themselves: they must not change while it is used."""
    return torch.frombuffer(values, dtype=dtype)
