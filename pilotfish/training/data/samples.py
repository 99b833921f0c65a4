"""What drafters learn from: conversations with what the target computed of them, kept on disk.

Shards are safetensors files, written whole and renamed, each a run of conversations: what a kill tears off is
never seen, and more data later becomes more shards.

Shapes: T tokens of a conversation, A rows that decide an answer's tokens, H hidden size, F captured layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pilotfish.errors import InvalidRequestError
from pilotfish.training.data.conversations import replacing

SHARD_TOKENS = 8192
"""Tokens of a shard, or a little more: so much work is lost by a kill."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One conversation with what the target computed. Rows of the prompt but the last have no target columns."""

    prompt_len: int
    token_ids: Tensor
    """The conversation, int64 [T]."""
    features: Tensor
    """[T, F * H], the inputs of the captured layers."""
    answer_hidden: Tensor
    """[A, H], after the final norm, from the prompt's last row on. Empty, [0, H]: not known, so that choices alone are
    learned from."""
    choices: Tensor
    """The target's choice after each row, int64 [T]: its argmax, or what it drew; -1 in the prompt."""
    log_mass: Tensor
    """The logsumexp of the target's logits after each row, float32 [T]."""

    @property
    def num_answer_tokens(self) -> int:
        return len(self.token_ids) - self.prompt_len

    @property
    def has_hidden(self) -> bool:
        """Whether the target's distributions are known, and not its choices alone."""
        return len(self.answer_hidden) > 0

    @property
    def last_hidden(self) -> Tensor:
        """[T, H], a copy of answer_hidden behind zeros for the prompt, or for all that is not known."""
        num_before = self.prompt_len - 1 if self.has_hidden else len(self.token_ids)
        return torch.cat((self.answer_hidden.new_zeros(num_before, self.answer_hidden.shape[1]), self.answer_hidden))

    def to(self, device: torch.device) -> Sample:
        """The sample on a device; itself where it is there."""
        tensors = (self.token_ids, self.features, self.answer_hidden, self.choices, self.log_mass)
        return (
            self if self.choices.device == device else Sample(self.prompt_len, *(part.to(device) for part in tensors))
        )

    @property
    def prompt(self) -> tuple[int, ...]:
        """Tokens of the prompt."""
        return tuple(self.token_ids[: self.prompt_len].tolist())


class SampleStore:
    """The shards of one folder."""

    def __init__(self, folder: Path) -> None:
        """Raises InvalidRequestError naming a file that is no shard."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for torn in folder.glob(".*.partial"):
            torn.unlink()
        self._paths = sorted(folder.glob("shard-*.safetensors"))
        self.num_conversations = 0
        """Conversations of the data that went into the shards, in its order, or were left out of them."""
        self.answered: Counter[int] = Counter()
        """Answers that are done, by the prompt's number; also those that were too short to keep."""
        for path in self._paths:
            end, answered = _summary(path)
            self.num_conversations = max(self.num_conversations, end)
            self.answered.update(answered)

    def add(self, samples: Sequence[Sample], *, end: int, answered: Sequence[int] = ()) -> None:
        """Write a shard; without samples nothing is written. Raises OSError when the disk is full.

        end: num_conversations from now on; answered: numbers of the prompts whose answers are done with these.
        """
        if samples:
            self._write(samples, end, answered)
        self.num_conversations = end
        self.answered.update(answered)

    @property
    def num_bytes(self) -> int:
        """Bytes on disk."""
        return sum(path.stat().st_size for path in self._paths)

    def read(self) -> Iterator[Sample]:
        """All samples in order, memory-mapped: a tensor is read from disk when it is used."""
        for path in self._paths:
            yield from _read_shard(path)

    def _write(self, samples: Sequence[Sample], end: int, answered: Sequence[int]) -> None:
        path = self._folder / f"shard-{len(self._paths):05d}.safetensors"
        columns = {
            "features": torch.cat([sample.features for sample in samples]),
            "answer_hidden": torch.cat([sample.answer_hidden for sample in samples]),
            "token_ids": torch.cat([sample.token_ids for sample in samples]).int(),
            "choices": torch.cat([sample.choices for sample in samples]).int(),
            "log_mass": torch.cat([sample.log_mass for sample in samples]),
            "lengths": torch.tensor([len(sample.token_ids) for sample in samples]),
            "prompt_lens": torch.tensor([sample.prompt_len for sample in samples]),
            "answered": torch.tensor(answered, dtype=torch.int64),
        }
        with replacing(path) as temporary:
            save_file(columns, temporary, metadata={"end": str(end)})
        self._paths.append(path)


def _summary(path: Path) -> tuple[int, list[int]]:
    """The conversations up to a shard's end, and the prompts answered in it."""
    try:
        with safe_open(path, framework="pt") as shard:
            answered: list[int] = shard.get_tensor("answered").tolist()
            return int(shard.metadata()["end"]), answered
    except SafetensorError as error:
        raise InvalidRequestError(f"{path} is no shard of features ({error}): delete it") from error


def _read_shard(path: Path) -> Iterator[Sample]:
    with safe_open(path, framework="pt") as shard:
        columns = {name: shard.get_tensor(name) for name in shard.keys()}  # noqa: SIM118 -- no mapping
    start = answer_start = 0
    for length, prompt_len in zip(columns["lengths"].tolist(), columns["prompt_lens"].tolist(), strict=True):
        rows = slice(start, start + length)
        answer_rows = slice(answer_start, answer_start + length - prompt_len + 1)
        yield Sample(
            prompt_len,
            columns["token_ids"][rows].long(),
            columns["features"][rows],
            columns["answer_hidden"][answer_rows],
            columns["choices"][rows].long(),
            columns["log_mass"][rows],
        )
        start, answer_start = rows.stop, answer_rows.stop
