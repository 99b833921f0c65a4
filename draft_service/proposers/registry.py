"""Which proposers there are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import MappingProxyType

from draft_service.proposers.eagle3 import start_eagle3_proposer
from draft_service.proposers.hybrid import start_hybrid_proposer
from draft_service.proposers.lookup import lookup_proposer
from draft_service.proposers.model import start_model_proposer
from pilotfish.config import Config
from pilotfish.engine.process.client import EngineClient
from pilotfish.errors import ConfigError
from pilotfish.speculation.lookup.lookups import LOOKUPS

Proposer = Callable[[Config], Awaitable[EngineClient]]
"""Starts an engine that answers OpenSequence with Opened and Propose with Proposal (or SequenceError).

Rewind by statement: a Propose forgets every token past base_length - len(new_token_ids). In rejection
mode a Proposal carries one SparseDistribution per token, the one it was sampled from. It is a tree only where
the Propose asks for one. How to add a proposer: docs/proposers.md.
"""

PROPOSERS: MappingProxyType[str, Proposer] = MappingProxyType(
    {
        "model": start_model_proposer,
        "eagle3": start_eagle3_proposer,
        "hybrid": start_hybrid_proposer,
        **{name: lookup_proposer(name) for name in LOOKUPS},
    }
)


async def start_proposer(config: Config) -> EngineClient:
    """Start config.draft.proposer. Raises ConfigError when there is none of that name."""
    proposer = PROPOSERS.get(config.draft.proposer)
    if proposer is None:
        raise ConfigError(f"draft.proposer is {config.draft.proposer!r}; known are {', '.join(sorted(PROPOSERS))}")
    return await proposer(config)
