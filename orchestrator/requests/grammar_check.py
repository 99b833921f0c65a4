"""Grammars are checked here, so that a bad one is refused before anything is spent on it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from pilotfish.errors import InvalidRequestError
from pilotfish.structured.guard import GrammarGuard
from pilotfish.types import Grammar

MAX_KNOWN_GRAMMARS = 1024
"""Verdicts that are remembered, so that a schema that comes with every request is checked once."""


class GrammarCheck:
    """Belongs to one event loop."""

    def __init__(self, guard: GrammarGuard) -> None:
        """guard: owned from now on."""
        self._guard = guard
        self._refusals: OrderedDict[Grammar, InvalidRequestError | None] = OrderedDict()
        # A thread of its own: whoever sends large schemas takes no more than a core, and holds up nothing else.
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grammar")

    @property
    def num_deaths(self) -> int:
        """Grammars that the guard's compiling process died of."""
        return self._guard.num_deaths

    async def check(self, grammar: Grammar) -> None:
        """Raises InvalidRequestError that names what is wrong or not supported; UnavailableError if none can tell."""
        try:
            self._refusals.move_to_end(grammar)
            refusal = self._refusals[grammar]
        except KeyError:
            refusal = await asyncio.get_running_loop().run_in_executor(self._executor, self._judge, grammar)
        if refusal is not None:
            raise InvalidRequestError(str(refusal), param=refusal.param)

    def close(self) -> None:
        """End the guard's process. Idempotent."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._guard.close()

    def _judge(self, grammar: Grammar) -> InvalidRequestError | None:
        """On the thread. Why the grammar cannot be used."""
        if grammar in self._refusals:  # somebody else asked meanwhile
            return self._refusals[grammar]
        refusal = None
        try:
            self._guard.check(grammar)
        except InvalidRequestError as error:
            refusal = error
        self._refusals[grammar] = refusal
        if len(self._refusals) > MAX_KNOWN_GRAMMARS:
            self._refusals.popitem(last=False)
        return refusal
