"""The proposer `eagle3`: a head on the target's features, which come with each Propose, in an engine process."""

from __future__ import annotations

from pilotfish.config import Config
from pilotfish.engine.process.client import EngineClient
from pilotfish.engine.process.process_engine import ProcessEngine


async def start_eagle3_proposer(config: Config) -> EngineClient:
    """Load config.draft.head. Raises ModelError kinds."""
    return await ProcessEngine.start(config, "draft")
