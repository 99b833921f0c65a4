"""The prompts of a benchmark: Spec-Bench's jsonl, a plain text list, or a small set of our own.

Of a conversation only the first turn is used: later turns depend on the model's own answers.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from pilotfish.bench.text_file import read_lines, read_records
from pilotfish.errors import ConfigError

OWN_PROMPTS = Path(__file__).with_name("prompts.jsonl")
"""Five kinds of task (code, chat, creative writing, factual questions, translation) and others of Spec-Bench; the texts
are ours."""
TEXT_CATEGORY = "text"
"""The category of prompts from a plain text list."""


class Prompt(msgspec.Struct, frozen=True):
    """A first user turn."""

    category: str
    text: str
    references: tuple[str, ...] = ()
    """Right answers, of which any one will do; empty: nobody knows."""


Reference = str | int | float | list[str | list[str]] | None
"""Spec-Bench has one for each turn, or several of which any one will do."""


class _Record(msgspec.Struct):
    """A line of Spec-Bench's jsonl; other fields are ignored."""

    category: Annotated[str, msgspec.Meta(min_length=1)]
    turns: Annotated[list[str], msgspec.Meta(min_length=1)]
    question_id: int | str | None = None
    reference: Reference = None


class _ReferenceRecord(msgspec.Struct):
    """A line of a file of references; other fields are ignored, so that Spec-Bench's own file is one."""

    question_id: int | str
    reference: Reference = None


def load_prompts(
    path: Path | None = None, *, per_category: int | None = None, references: Path | None = None
) -> list[Prompt]:
    """The prompts of a file, category by category in turn; None: our own set.

    `*.jsonl` is read as Spec-Bench's (`category`, `turns`, `reference`), anything else as a list with a prompt on each
    line. per_category: the first so many of each category. references: lines of `question_id` and `reference`, before
    the prompts' own. Raises ConfigError, naming the line, for a file that cannot be used.
    """
    path = path or OWN_PROMPTS
    known = {} if references is None else _read_references(references)
    if path.suffix == ".jsonl":
        prompts = _read_jsonl(path, known)
    else:
        prompts = [Prompt(TEXT_CATEGORY, line.strip()) for line in read_lines(path, "prompts from") if line.strip()]
    if not prompts:
        raise ConfigError(f"{path} holds no prompts")
    if references is not None and not any(prompt.references for prompt in prompts):
        raise ConfigError(f"{references} holds a reference for none of the prompts of {path}")
    by_category: dict[str, list[Prompt]] = defaultdict(list)
    for prompt in prompts:
        by_category[prompt.category].append(prompt)
    rounds = itertools.islice(itertools.zip_longest(*by_category.values()), per_category)
    return [prompt for prompts_of_a_round in rounds for prompt in prompts_of_a_round if prompt is not None]


def _read_references(path: Path) -> dict[int | str, tuple[str, ...]]:
    records = (record for _, record in read_records(path, _ReferenceRecord, "references from"))
    return {record.question_id: _first(record.reference) for record in records}


def _first(reference: Reference) -> tuple[str, ...]:
    """Those of the first turn."""
    first = reference[0] if reference and isinstance(reference, list) else reference
    if isinstance(first, list):
        return tuple(map(str, first))
    return () if first is None else (str(first),)


def _read_jsonl(path: Path, references: Mapping[int | str, tuple[str, ...]]) -> list[Prompt]:
    prompts = []
    for number, record in read_records(path, _Record, "prompts from"):
        if not record.turns[0].strip():
            raise ConfigError(f"{path} line {number}: the first turn is empty")
        known = () if record.question_id is None else references.get(record.question_id, ())
        prompts.append(Prompt(record.category, record.turns[0], known or _first(record.reference)))
    return prompts
