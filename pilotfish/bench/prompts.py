"""The prompts of a benchmark: Spec-Bench's jsonl, a plain text list, or a small set of our own.

Of a conversation only the first turn is used: later turns depend on the model's own answers.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path
from typing import Annotated

import msgspec

from pilotfish.bench.text_file import read_lines, read_records
from pilotfish.errors import ConfigError

OWN_PROMPTS = Path(__file__).with_name("prompts.jsonl")
"""Spec-Bench's categories; the texts are ours."""
TEXT_CATEGORY = "text"
"""The category of prompts from a plain text list."""


class Prompt(msgspec.Struct, frozen=True):
    """A first user turn."""

    category: str
    text: str


class _Record(msgspec.Struct):
    """A line of Spec-Bench's jsonl; other fields are ignored."""

    category: Annotated[str, msgspec.Meta(min_length=1)]
    turns: Annotated[list[str], msgspec.Meta(min_length=1)]


def load_prompts(path: Path | None = None, *, per_category: int | None = None) -> list[Prompt]:
    """The prompts of a file, category by category in turn; None: our own set.

    `*.jsonl` is read as Spec-Bench's (`category`, `turns`), anything else as a list with a prompt on each line.
    per_category: the first so many of each category. Raises ConfigError, naming the line, for a file that cannot
    be used.
    """
    path = path or OWN_PROMPTS
    if path.suffix == ".jsonl":
        prompts = _read_jsonl(path)
    else:
        prompts = [Prompt(TEXT_CATEGORY, line.strip()) for line in read_lines(path, "prompts from") if line.strip()]
    if not prompts:
        raise ConfigError(f"{path} holds no prompts")
    by_category: dict[str, list[Prompt]] = defaultdict(list)
    for prompt in prompts:
        by_category[prompt.category].append(prompt)
    rounds = itertools.islice(itertools.zip_longest(*by_category.values()), per_category)
    return [prompt for prompts_of_a_round in rounds for prompt in prompts_of_a_round if prompt is not None]


def _read_jsonl(path: Path) -> list[Prompt]:
    prompts = []
    for number, record in read_records(path, _Record, "prompts from"):
        if not record.turns[0].strip():
            raise ConfigError(f"{path} line {number}: the first turn is empty")
        prompts.append(Prompt(record.category, record.turns[0]))
    return prompts
