"""Penalties, logit bias, grammar, min_tokens and bad_words: the steps that look at the tokens before a position.

Shapes: R rows, V vocabulary, E (row, token) pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import torch
from torch import Tensor

from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.constraints import TokenConstraint, without_forbidden
from pilotfish.speculation.sampling.history import CountTable, TokenHistory
from pilotfish.speculation.sampling.transfer import moved, to_device
from pilotfish.types import SamplingParams

_MAX_LOGIT = 1e30
"""Far beyond any logit, and a difference of two stays within float32: infinite logits make NaN."""


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


def needs_adjustment(sampling: SamplingParams) -> bool:
    """Whether anything but temperature and truncation changes the logits."""
    return sampling.needs_history or bool(sampling.logit_bias) or sampling.grammar is not None


def adjust(blocks: BlockedLogits, rows: Sequence[Row]) -> BlockedLogits:
    """Penalties, logit bias, grammar, then min_tokens and bad_words, on a copy; the input itself when no row has any.

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
    if all(mask is None for mask in masks):
        return blocks
    return _narrowed(blocks, without_forbidden(blocks.logits, masks))


def _forbid(blocks: BlockedLogits, rows: Sequence[Row]) -> BlockedLogits:
    """An answer that its grammar has ended ends, whatever min_tokens says."""
    entries = [(index, token_id) for index, row in enumerate(rows) for token_id in _forbidden(row)]
    entries = [entry for entry in entries if entry[1] < blocks.vocab_size]
    if not entries:
        return blocks
    entry_rows, token_ids = (
        to_device(column, torch.int64, blocks.logits.device) for column in zip(*entries, strict=True)
    )
    logits = blocks.logits.clone()
    logits[entry_rows, token_ids] = -torch.inf
    return _narrowed(blocks, logits)


def _forbidden(row: Row) -> Iterator[int]:
    """Tokens that may not come yet, or not here."""
    sampling, history, drafts = row.sampling, row.history, row.draft_token_ids
    if history is None:
        return
    if history.num_output_tokens + len(drafts) < sampling.min_tokens:
        yield from sampling.stop_token_ids
    end = history.end(max(map(len, sampling.bad_words), default=1) - 1, drafts)
    for word in sampling.bad_words:
        if len(word) == 1 or end[1 - len(word) :] == word[:-1]:
            yield word[-1]


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
    entry_rows = moved(torch.frombuffer(table.rows, dtype=torch.int64), device)  # [E]
    token_ids = moved(torch.frombuffer(table.token_ids, dtype=torch.int64), device)  # [E]
    counts = moved(torch.frombuffer(table.output_counts, dtype=torch.int64), device)  # [E]
    samplings = [row.sampling for row in rows]
    parameters = to_device(
        [(s.repetition_penalty, s.presence_penalty, s.frequency_penalty) for s in samplings], torch.float32, device
    )
    repetition, presence, frequency = parameters[entry_rows].unbind(-1)
    values = logits[entry_rows, token_ids]
    values = torch.where(values > 0, values / repetition, values * repetition)
    values -= presence * (counts > 0) + frequency * counts
    logits[entry_rows, token_ids] = values.clamp_(-_MAX_LOGIT, _MAX_LOGIT)


def _apply_bias_(logits: Tensor, rows: Sequence[Row]) -> None:
    entries = [(index, *pair) for index, row in enumerate(rows) for pair in row.sampling.logit_bias]
    if not entries:
        return
    entry_rows, token_ids, biases = zip(*entries, strict=True)
    device = logits.device
    index = (to_device(entry_rows, torch.int64, device), to_device(token_ids, torch.int64, device))
    logits.index_put_(index, to_device(biases, torch.float32, device), accumulate=True)
    # A token may be named more than once, and two large finite addends make an infinite one.
    logits[index] = logits[index].clamp_(-_MAX_LOGIT, _MAX_LOGIT)
