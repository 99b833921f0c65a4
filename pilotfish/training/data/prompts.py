"""Prompts that a user brings for the target to answer: jsonl with lines `{"turns": ["...", ...]}`, read as a whole.

Of a conversation of several turns the first is asked. Other fields of a line are not looked at.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pilotfish.chat import ChatMessage
from pilotfish.errors import InvalidRequestError
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.training.data.conversations import read_lines


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a user asks."""

    text: str
    token_ids: tuple[int, ...]
    """The prompt in the target's chat template, up to where its answer begins."""


class PromptQueue:
    """Answers that given prompts still wait for, in the prompts' order."""

    def __init__(self, prompts: Sequence[Prompt], answers_each: int, max_tokens: int, answered: Counter[int]) -> None:
        """answered: finished answers, by the index of a prompt. Prompts above max_tokens are left out."""
        usable = [index for index, prompt in enumerate(prompts) if len(prompt.token_ids) <= max_tokens]
        self._prompts = prompts
        self._num_too_long = len(prompts) - len(usable)
        self._total = len(usable) * answers_each
        self._due = deque((index, number) for index in usable for number in range(answered[index], answers_each))

    def __len__(self) -> int:
        return len(self._due)

    def take(self) -> tuple[int, int, Prompt]:
        """The next prompt: its index, how many answers to it were begun before, and what it says."""
        index, number = self._due.popleft()
        return index, number, self._prompts[index]

    @property
    def note(self) -> str:
        """How far it is, for people."""
        note = f"{self._total - len(self._due):,} of {self._total:,} answers to prompts begun" if self._prompts else ""
        return f"{note}, {self._num_too_long:,} prompts are too long" if self._num_too_long else note


class _Line(msgspec.Struct):
    turns: list[str]


_decoder = msgspec.json.Decoder(_Line)


def read_prompts(path: Path, tokenizer: Tokenizer) -> list[Prompt]:
    """All prompts of a file.

    Raises: InvalidRequestError for a file that cannot be read or holds no prompt, naming the line of what is wrong.
    """
    prompts = []
    for source, line in read_lines(path, _decoder):
        if not line.turns or not line.turns[0].strip():
            raise InvalidRequestError(f"{source}: turns must begin with what the user says")
        text = line.turns[0]
        prompts.append(Prompt(text, tuple(tokenizer.apply_chat_template([ChatMessage("user", text)]))))
    if not prompts:
        raise InvalidRequestError(f"{path} holds no prompts")
    return prompts
