"""The draft service: a proposer behind the draft stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from types import MappingProxyType

from draft_service.proposers.lookup import start_lookup_proposer
from pilotfish.config import Config
from pilotfish.emulation.engine import start_emulated_engine
from pilotfish.engine.process.process_engine import ProcessEngine
from pilotfish.errors import ConfigError
from pilotfish.messages import EngineClient
from pilotfish.rpc.draft_frames import DraftFrames
from pilotfish.rpc.replica.server import ReplicaServer, start_replica
from pilotfish.speculation.lookup.lookups import LOOKUPS

Proposer = Callable[[Config], Awaitable[EngineClient]]
"""Starts an engine that answers OpenSequence with Opened and Propose with Proposal (or SequenceError).

Rewind by statement: a Propose forgets every token past base_length - len(new_token_ids). In rejection
mode a Proposal carries one SparseDistribution per token, the one it was sampled from. It is a tree only where
the Propose asks for one. How to add a proposer: docs/proposers.md.
"""


async def start_engine(config: Config) -> EngineClient:
    """A causal language model with the target's tokenizer (config.draft.model), or a head on the target's features,
    which come with each Propose (config.draft.head), in an engine process. Raises ModelError kinds."""
    return await ProcessEngine.start(config, "draft")


PROPOSERS: MappingProxyType[str, Proposer] = MappingProxyType(
    {
        "model": start_engine,
        "eagle3": start_engine,
        **{name: partial(start_lookup_proposer, name=name) for name in LOOKUPS},
    }
)


async def start_draft(config: Config, *, engine: EngineClient | None = None) -> ReplicaServer:
    """Start the configured proposer (unless an engine is given, which is then owned) and serve.

    With an `emulation` section the proposer is an emulated one, whichever is configured.

    Raises: ConfigError for an unknown proposer, or when strangers would be served; UnavailableError when the
    address cannot be had; ModelError kinds when the model cannot.
    """

    async def start_engine() -> EngineClient:
        if config.emulation.is_on:
            return start_emulated_engine(config, "draft")
        proposer = PROPOSERS.get(config.draft.proposer)
        if proposer is None:
            raise ConfigError(f"draft.proposer is {config.draft.proposer!r}; known are {', '.join(sorted(PROPOSERS))}")
        return await proposer(config)

    told = "" if config.emulation.is_on else config.draft.proposer
    return await start_replica(config, DraftFrames(), start_engine, engine=engine, proposer=told)
