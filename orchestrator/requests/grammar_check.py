"""Grammars are checked here, so that a bad one is refused before anything is spent on it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from pilotfish.structured.grammar import check_grammar
from pilotfish.types import Grammar

MAX_KNOWN_GRAMMARS = 1024
"""Good ones that are remembered, so that a schema that comes with every request is checked once."""


class GrammarCheck:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._known: OrderedDict[Grammar, None] = OrderedDict()
        # One at a time: whoever sends large schemas takes no more than a core.
        self._turn = asyncio.Semaphore(1)

    async def check(self, grammar: Grammar) -> None:
        """Raises InvalidRequestError that names what is wrong or not supported."""
        if grammar in self._known:
            self._known.move_to_end(grammar)
            return
        async with self._turn:
            await asyncio.to_thread(check_grammar, grammar)
        self._known[grammar] = None
        if len(self._known) > MAX_KNOWN_GRAMMARS:
            self._known.popitem(last=False)
