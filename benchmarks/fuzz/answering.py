"""Generated answers through everything between a verdict and the client: see answers.py."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator

from fuzz.answers import fuzz_answers

NUM_ANSWERS = 50


class AnsweringSurface:
    """An input is the seed of so many answers."""

    name = "answers"

    def make(self, rng: random.Random) -> bytes:
        return str(rng.getrandbits(32)).encode()

    def mutate(self, rng: random.Random, data: bytes, other: bytes) -> bytes:  # noqa: ARG002
        return self.make(rng)

    def size(self, data: bytes) -> int:  # noqa: ARG002
        return NUM_ANSWERS

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield

    async def run(self, data: bytes) -> set[str]:
        report = fuzz_answers(int(data), NUM_ANSWERS)
        if report.num_faults:
            raise AssertionError("\n".join(report.faults))
        return {"sound"}
