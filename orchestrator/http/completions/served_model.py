"""The model that is served, by the name that requests give it."""

from __future__ import annotations

from orchestrator.inference import InferenceService
from pilotfish.errors import ModelNotFoundError
from pilotfish.types import ModelInfo


async def served_model(service: InferenceService, name: str | None) -> ModelInfo:
    """The served model. Waits for a target replica.

    Raises ModelNotFoundError if `name` is that of another, UnavailableError without a replica.
    """
    model = (await service.ready_target()).model
    check_model_name(name, model)
    return model


def check_model_name(name: str | None, model: ModelInfo) -> None:
    """No name is the served model's. Raises ModelNotFoundError."""
    if name and name != model.model_id:
        raise ModelNotFoundError(f"the model {name!r} does not exist; this server serves {model.model_id!r}")


def connected_model(service: InferenceService) -> ModelInfo | None:
    """The served model if a replica is connected now."""
    return next((link.model for link in service.targets.links if link.is_connected), None)
