"""Which tests may tell that a line is wrong, and in which order they are asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mutation.mutations import Mutant
from mutation.server import IMPORTED, SHARED

BATCHES_S = (2.0, 10.0, 60.0)
"""Tests of so many seconds are run together, then those of so many more: most mutants fall to the first."""
FILE_S = 0.1
"""What it costs to collect a file."""


@dataclass
class Batch:
    """Tests that are run together."""

    files: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """What they took unchanged."""


class Reach:
    """Of every line the tests that ran it, by what `server.record` said of each file of tests."""

    def __init__(self, records: Iterable[Mapping[str, Any]]) -> None:
        self._seconds: dict[str, dict[str, float]] = {}
        self._lines: dict[str, dict[int, set[tuple[str, str]]]] = {}
        for record in records:
            file = record["file"]
            self._seconds[file] = record["seconds"]
            for path, lines in record["lines"].items():
                for line, contexts in lines.items():
                    seen = self._lines.setdefault(path, {}).setdefault(int(line), set())
                    seen.update((file, context) for context in contexts)

    @property
    def num_tests(self) -> int:
        return sum(map(len, self._seconds.values()))

    def batches(self, mutant: Mutant) -> list[Batch]:
        """Every test that ran the mutant's statement, the quickest files first.

        A line that runs at import is read by whoever uses the module: the tests that run any function of it, or,
        where there is none, those that import it.
        """
        lines = self._lines.get(mutant.path, {})
        first, last = mutant.lines
        seen = set().union(*(contexts for line, contexts in lines.items() if first <= line <= last))
        if any(context == IMPORTED for _, context in seen):
            everywhere: set[tuple[str, str]] = set().union(*lines.values())
            seen = {pair for pair in everywhere if pair[1] != IMPORTED} or seen
        return list(self._batches(seen))

    def _batches(self, seen: set[tuple[str, str]]) -> Iterator[Batch]:
        chosen: dict[str, set[str]] = {}
        for file, context in seen:
            everyone = self._seconds[file]
            some = everyone if context in (IMPORTED, SHARED) else {context} & everyone.keys()
            chosen.setdefault(file, set()).update(some)
        costs = {file: FILE_S + sum(self._seconds[file][test] for test in tests) for file, tests in chosen.items()}
        batch, sizes = Batch(), iter(BATCHES_S)
        size = next(sizes)
        for file in sorted(costs, key=lambda file: (costs[file], file)):
            if not chosen[file]:
                continue
            if batch.files and batch.seconds + costs[file] > size:
                yield batch
                batch, size = Batch(), next(sizes, size)
            batch.files.append(file)
            batch.tests.extend(sorted(chosen[file]))
            batch.seconds += costs[file]
        if batch.files:
            yield batch
