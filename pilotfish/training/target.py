"""The target as a drafter is made of it: whole, or as much as is needed where the rest runs elsewhere."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import torch

from pilotfish.drafter_registry import METHODS, room
from pilotfish.models.loading import LoadedModel, load_model, require_supported
from pilotfish.models.store.catalogue import merged_id
from pilotfish.models.store.folder import read_metadata, text_fields
from pilotfish.models.store.pull import pull_model
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from pilotfish.parallel.partial_model import load_layers
from pilotfish.training.request import TrainingRequest


def load_target(request: TrainingRequest, device: torch.device) -> LoadedModel:
    """What the request's method makes its drafter of. Raises as load_model and load_layers do."""
    if not request.target_address:
        return load_model(request.target, cache_dir=request.cache_dir, device=device)
    folder = pull_model(request.target, request.cache_dir)
    num_layers = int(text_fields(read_metadata(folder).config)["num_hidden_layers"])
    layers = room(METHODS[request.method], "train").needed_layers(request, num_layers)
    return load_parts(request.target, request.cache_dir, layers, device)


def load_parts(
    target: str, cache_dir: Path, layers: Collection[int], device: torch.device, *, adapter: str = ""
) -> LoadedModel:
    """The target with those of its layers alone; see load_layers. adapter: see pull_model."""
    folder = pull_model(target, cache_dir, adapter=adapter)
    metadata = read_metadata(folder)
    path = require_supported(metadata, folder)
    path.require_paged("pilotfish train")
    return LoadedModel(
        model=load_layers(folder, layers, dtype=torch.bfloat16, device=device),
        folder=folder,
        model_id=merged_id(target, adapter),
        vocab_size=metadata.vocab_size,
        max_context_tokens=metadata.max_context_tokens,
        fingerprint=tokenizer_fingerprint(folder),
        path=path,
    )
