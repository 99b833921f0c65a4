"""The draft service: a proposer behind the draft stream."""

from __future__ import annotations

from functools import partial

from draft_service.lookup_engine import start_lookup_engine
from draft_service.translation.engine import translated
from pilotfish.config import Config
from pilotfish.drafter_registry import DRAFTERS, Location, Needs
from pilotfish.emulation.factory import start_engine
from pilotfish.engine_client import EngineClient
from pilotfish.errors import ConfigError
from pilotfish.rpc.draft_frames import DraftFrames
from pilotfish.rpc.replica.server import ReplicaServer, start_replica


async def start_proposer(config: Config) -> EngineClient:
    """The configured drafter: a lookup here, or what needs a model or a head in an engine process. With an `emulation`
    section an emulated one, whichever is configured.

    It answers OpenSequence with Opened and Propose with Proposal (or SequenceError). Rewind by statement: a Propose
    forgets every token past base_length - len(new_token_ids). In rejection mode a Proposal carries one
    SparseDistribution per token, the one it was sampled from. It is a tree only where the Propose asks for one. With
    draft.vocabulary a draft model of another one than target.model drafts in that one (draft_service.translation).

    Raises: ConfigError for an unknown one; ModelError kinds.
    """
    if not config.emulation.is_on:
        name = config.draft.drafter
        kind = DRAFTERS.get(name)
        if kind is None or Location.DRAFT_SERVICE not in kind.runs_in:
            known = sorted(name for name, kind in DRAFTERS.items() if Location.DRAFT_SERVICE in kind.runs_in)
            raise ConfigError(f"draft.proposer is {name!r}; known are {', '.join(known)}")
        if kind.needs is Needs.TEXT:
            return await start_lookup_engine(config, name)
    engine = await start_engine(config, "draft")
    if config.emulation.is_on or config.draft.drafter != "model" or config.draft.vocabulary == "same":
        return engine
    return await translated(engine, config)


async def start_draft(config: Config, *, engine: EngineClient | None = None) -> ReplicaServer:
    """Start the configured proposer (unless an engine is given, which is then owned) and serve.

    Raises: ConfigError for an unknown proposer, or when strangers would be served; UnavailableError when the
    address cannot be had; ModelError kinds when the model cannot.
    """
    proposer = "" if config.emulation.is_on else config.draft.drafter
    return await start_replica(config, DraftFrames(), partial(start_proposer, config), engine=engine, proposer=proposer)
