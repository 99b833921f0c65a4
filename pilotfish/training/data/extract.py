"""Feature extraction: the target runs once over data that a user brought, and what drafters learn from is kept.

An interrupted extraction goes on after its last shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import Decoder, StepInput
from pilotfish.training.data.conversations import Conversation
from pilotfish.training.data.samples import SHARD_TOKENS, Sample, SampleStore
from pilotfish.types import BLOCK_SIZE

_STEP_ROWS = 512
"""Rows of a forward: enough to read the weights rarely, few enough for the logits to stay in memory."""


class Extractor(Protocol):
    """Who computes samples, here or elsewhere."""

    def extract(self, conversations: Sequence[Conversation]) -> Iterable[Sample]:
        """The samples of the conversations, in order; those with no answer within its longest text are left out."""


class FeatureExtractor(Extractor):
    """Runs a decoder over conversations, several in one forward."""

    def __init__(self, decoder: Decoder, layers: Sequence[int], max_tokens: int) -> None:
        """max_tokens: the most of a conversation; longer ones are cut at their end."""
        self._decoder = decoder
        self._max_tokens = max_tokens
        self._blocks_each = -(-max_tokens // BLOCK_SIZE)
        self._num_slots = max(1, _STEP_ROWS // 64)
        decoder.capture(layers)
        decoder.allocate(self._num_slots * self._blocks_each + 1)

    def extract(self, conversations: Sequence[Conversation]) -> Iterator[Sample]:
        """The samples of the conversations, in order; those with no answer within max_tokens are left out."""
        kept = [
            conversation.token_ids[: self._max_tokens]
            for conversation in conversations
            if conversation.prompt_len < self._max_tokens
        ]
        prompt_lens = [conv.prompt_len for conv in conversations if conv.prompt_len < self._max_tokens]
        start = 0
        while start < len(kept):
            end, rows = start, 0
            while end < len(kept) and end - start < self._num_slots and (end == start or rows < _STEP_ROWS):
                rows += len(kept[end])
                end += 1
            yield from self._run(kept[start:end], prompt_lens[start:end])
            start = end

    def _run(self, sequences: Sequence[list[int]], prompt_lens: Sequence[int]) -> Iterator[Sample]:
        """A few whole conversations in one forward, or one long one in several."""
        parts: list[list[tuple[Tensor, ...]]] = [[] for _ in sequences]
        done = [0] * len(sequences)
        while any(done[index] < len(tokens) for index, tokens in enumerate(sequences)):
            chunks = []
            room = _STEP_ROWS
            for index, tokens in enumerate(sequences):
                size = min(room, len(tokens) - done[index])
                if size > 0:
                    chunks.append((index, done[index], size))
                    done[index] += size
                    room -= size
            for (index, _, _), part in zip(chunks, self._forward(sequences, prompt_lens, chunks), strict=True):
                parts[index].append(part)
        for tokens, prompt_len, columns in zip(sequences, prompt_lens, parts, strict=True):
            features, hidden, choices, log_mass = (torch.cat(column) for column in zip(*columns, strict=True))
            yield Sample(prompt_len, torch.tensor(tokens), features, hidden[prompt_len - 1 :], choices, log_mass)

    def _forward(
        self, sequences: Sequence[list[int]], prompt_lens: Sequence[int], chunks: Sequence[tuple[int, int, int]]
    ) -> Iterator[tuple[Tensor, ...]]:
        """Features, last hidden, choices, log mass of each chunk (sequence, first position, rows)."""
        token_ids: list[int] = []
        positions: list[int] = []
        slices: list[SequenceSlice] = []
        logit_rows: list[int] = []
        for index, first, size in chunks:
            first_block = 1 + index * self._blocks_each
            blocks = range(first_block, first_block + self._blocks_each)
            slices.append(SequenceSlice(len(token_ids), size, first, blocks))
            skipped = max(0, prompt_lens[index] - 1 - first)
            logit_rows.extend(range(len(token_ids) + skipped, len(token_ids) + size))
            token_ids.extend(sequences[index][first : first + size])
            positions.extend(range(first, first + size))
        logits = self._decoder.forward(StepInput(token_ids, positions, slices, logit_rows))
        rows = torch.tensor(logit_rows, dtype=torch.int64)
        features, last_hidden = self._decoder.features.cpu(), self._decoder.last_hidden.cpu()
        hidden = features.new_zeros(len(token_ids), last_hidden.shape[-1])
        choices = torch.full((len(token_ids),), -1)
        log_mass = torch.zeros(len(token_ids))
        if len(rows):
            hidden[rows] = last_hidden
            choices[rows] = logits.argmax(-1).cpu()
            log_mass[rows] = logits.float().logsumexp(-1).cpu()
        sizes = [size for _, _, size in chunks]
        columns = (features[: len(token_ids)].clone(), hidden, choices, log_mass)
        yield from zip(*(torch.split(column, sizes) for column in columns), strict=True)


def extend(
    store: SampleStore,
    extractor: Extractor,
    conversations: Sequence[Conversation],
    on_progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Extract those of the conversations that follow the ones already in the store.

    on_progress gets the number of conversations done. Raises OSError when the disk is full.
    """
    while store.num_conversations < len(conversations):
        on_progress(store.num_conversations)
        end, num_tokens = store.num_conversations, 0
        while end < len(conversations) and num_tokens < SHARD_TOKENS:
            num_tokens += len(conversations[end].token_ids)
            end += 1
        with torch.inference_mode():
            samples = list(extractor.extract(conversations[store.num_conversations : end]))
        store.add(samples, end=end)
    on_progress(store.num_conversations)
