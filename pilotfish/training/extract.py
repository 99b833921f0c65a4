"""Feature extraction: the target runs once over all data, and what drafters learn from is kept on disk.

Shards are safetensors files, written whole and renamed, each a run of conversations: an interrupted extraction
goes on after its last shard, and more data appended later becomes more shards.

Shapes: T tokens of a shard, H hidden size, C conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pilotfish.errors import InvalidRequestError
from pilotfish.models.attention import SequenceSlice
from pilotfish.models.decoder import Decoder, StepInput
from pilotfish.training.conversations import Conversation
from pilotfish.types import BLOCK_SIZE

SHARD_TOKENS = 32768
_STEP_ROWS = 512
"""Rows of a forward: enough to read the weights rarely, few enough for the logits to stay in memory."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation with what the target computed. Rows of the prompt but the last have no target columns."""

    prompt_len: int
    token_ids: Tensor
    """int64 [T]"""
    features: Tensor
    """[T, F * H], the inputs of the captured layers."""
    last_hidden: Tensor
    """[T, H], after the final norm; zeros in the prompt."""
    choices: Tensor
    """int64 [T], the target's argmax after each row; -1 in the prompt."""
    log_mass: Tensor
    """float32 [T], logsumexp of the target's logits after each row."""

    @property
    def num_answer_tokens(self) -> int:
        return len(self.token_ids) - self.prompt_len


class FeatureExtractor:
    """Runs a decoder over conversations, several in one forward."""

    def __init__(self, decoder: Decoder, layers: Sequence[int], max_tokens: int) -> None:
        """max_tokens: of a conversation; longer ones are cut at their end."""
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
            joined = [torch.cat(column) for column in zip(*columns, strict=True)]
            yield Sample(prompt_len, torch.tensor(tokens), *joined)

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
        hidden = self._decoder.features.new_zeros(len(token_ids), self._decoder.last_hidden.shape[-1])
        choices = torch.full((len(token_ids),), -1)
        log_mass = torch.zeros(len(token_ids))
        if len(rows):
            hidden[rows] = self._decoder.last_hidden
            choices[rows] = logits.argmax(-1)
            log_mass[rows] = logits.float().logsumexp(-1)
        sizes = [size for _, _, size in chunks]
        columns = (self._decoder.features[: len(token_ids)].clone(), hidden, choices, log_mass)
        yield from zip(*(torch.split(column, sizes) for column in columns), strict=True)


class FeatureStore:
    """The shards of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for torn in folder.glob(".*.partial"):
            torn.unlink()
        self._paths = sorted(folder.glob("shard-*.safetensors"))
        self.num_conversations = 0
        """Of the data that went into the shards, in its order; also those that were left out of them."""
        for path in self._paths:
            self.num_conversations = max(self.num_conversations, int(_metadata(path)["end"]))

    def extend(
        self,
        extractor: FeatureExtractor,
        conversations: Sequence[Conversation],
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Extract those of the conversations that follow the ones already here.

        on_progress gets the number of conversations done. Raises OSError when the disk is full.
        """
        while self.num_conversations < len(conversations):
            on_progress(self.num_conversations)
            end, num_tokens = self.num_conversations, 0
            while end < len(conversations) and num_tokens < SHARD_TOKENS:
                num_tokens += len(conversations[end].token_ids)
                end += 1
            with torch.inference_mode():
                samples = list(extractor.extract(conversations[self.num_conversations : end]))
            if samples:
                self._write(samples, end)
            self.num_conversations = end
        on_progress(self.num_conversations)

    def read(self) -> Iterator[Sample]:
        """All samples in order, memory-mapped: a tensor is read from disk when it is used."""
        for path in self._paths:
            yield from _read_shard(path)

    def _write(self, samples: Sequence[Sample], end: int) -> None:
        path = self._folder / f"shard-{len(self._paths):05d}.safetensors"
        temporary = path.with_name(f".{path.name}.partial")
        columns = {
            "features": torch.cat([sample.features for sample in samples]),
            "last_hidden": torch.cat([sample.last_hidden for sample in samples]),
            "token_ids": torch.cat([sample.token_ids for sample in samples]).int(),
            "choices": torch.cat([sample.choices for sample in samples]).int(),
            "log_mass": torch.cat([sample.log_mass for sample in samples]),
            "lengths": torch.tensor([len(sample.token_ids) for sample in samples]),
            "prompt_lens": torch.tensor([sample.prompt_len for sample in samples]),
        }
        try:
            save_file(columns, temporary, metadata={"end": str(end)})
            temporary.replace(path)
        except SafetensorError as error:  # how the library tells an OSError of writing
            raise OSError(f"cannot write {path}: {error}") from error
        finally:
            temporary.unlink(missing_ok=True)
        self._paths.append(path)


def _metadata(path: Path) -> dict[str, str]:
    try:
        with safe_open(path, framework="pt") as shard:
            metadata: dict[str, str] = shard.metadata()
    except SafetensorError as error:
        raise InvalidRequestError(f"{path} is no shard of features ({error}): delete it") from error
    return metadata


def _read_shard(path: Path) -> Iterator[Sample]:
    with safe_open(path, framework="pt") as shard:
        columns = {name: shard.get_tensor(name) for name in shard.keys()}  # noqa: SIM118 -- no mapping
    start = 0
    for length, prompt_len in zip(columns["lengths"].tolist(), columns["prompt_lens"].tolist(), strict=True):
        rows = slice(start, start + length)
        yield Sample(
            prompt_len,
            columns["token_ids"][rows].long(),
            columns["features"][rows],
            columns["last_hidden"][rows],
            columns["choices"][rows].long(),
            columns["log_mass"][rows],
        )
        start += length
