"""The model that is served, by the name that requests give it."""

from __future__ import annotations

from orchestrator.inference import InferenceService
from pilotfish.errors import ModelNotFoundError
from pilotfish.types import ModelInfo


async def served_model(service: InferenceService, name: str | None) -> ModelInfo:
    """The served model; no name is its own. Waits for a target replica.

    Raises ModelNotFoundError if `name` is that of another, UnavailableError without a replica.
    """
    model = (await service.ready_target()).model
    names = service.model_names(model)
    if name and name not in names:
        raise ModelNotFoundError(
            f"the model {name!r} does not exist; this server serves {' or '.join(map(repr, names))}"
        )
    return service.named(model)


def connected_model(service: InferenceService) -> ModelInfo | None:
    """The served model if a replica is connected now."""
    return next((service.named(link.model) for link in service.targets.links if link.is_connected), None)
