"""The proposer `model`: a causal language model with the target's tokenizer, in an engine process."""

from __future__ import annotations

from pilotfish.config import Config
from pilotfish.engine.process.client import EngineClient
from pilotfish.engine.process.process_engine import ProcessEngine


async def start_model_proposer(config: Config) -> EngineClient:
    """Load config.draft.model. Raises ModelError kinds."""
    return await ProcessEngine.start(config, "draft")
