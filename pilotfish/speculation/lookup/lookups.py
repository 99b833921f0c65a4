"""Which lookups there are: a name, and what makes the index of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from pilotfish.config import DraftConfig
from pilotfish.speculation.lookup.index import LookupIndex
from pilotfish.speculation.lookup.ngram import ngram_lookup
from pilotfish.speculation.lookup.suffix import suffix_lookup

MakeIndex = Callable[[str], LookupIndex]
"""Makes a sequence's index from its cache_salt: nothing of one salt is found by a sequence of another."""
Lookup = Callable[[DraftConfig], MakeIndex]
"""Called once in a process: what its indexes share is made then."""

LOOKUPS: Mapping[str, Lookup] = MappingProxyType(
    {
        "ngram": ngram_lookup,
        "suffix": suffix_lookup,
    }
)
"""Served by the draft service and by the orchestrator under these names."""
