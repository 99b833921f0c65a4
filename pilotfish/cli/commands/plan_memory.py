"""`pilotfish plan --model`: what a model takes on so many GPUs."""

from __future__ import annotations

from pathlib import Path

from pilotfish.cli.console import print_result
from pilotfish.config import default_cache_dir
from pilotfish.config.shipped_heads import head_folder
from pilotfish.errors import ModelNotFoundError
from pilotfish.models.store.catalogue import resolve
from pilotfish.models.store.folder import read_json
from pilotfish.models.store.model_store import ModelCache
from pilotfish.models.store.pull import cached_folder
from pilotfish.parallel.shape import ModelShape
from pilotfish.parallel.sizes import ModelSizes
from pilotfish.planning.memory import plan_memory
from pilotfish.planning.tables import show_memory

_SHAPES = Path(__file__).parents[2] / "planning" / "data"
"""Configurations of models whose weights are not here."""
_SHAPES_ARE = "one whose shape comes with Pilotfish:"


def print_memory_plan(
    model: str,
    num_gpus: int,
    gpu_memory_gb: float,
    *,
    drafter: str,
    num_feature_layers: int,
    as_json: bool,
    no_color: bool,
) -> None:
    """Print the table or JSON. drafter: a model, a head or, empty, none. num_feature_layers: see plan_memory.

    Raises ConfigError for a number of GPUs that the model does not go into evenly."""
    folder = _folder(model)
    config = read_json(folder / "config.json")
    sizes = ModelSizes.of_config(config)
    sizes.require(num_gpus, model=model, setting="--gpus")
    counts = [count for count in sizes.rank_counts() if count <= num_gpus]
    plan = plan_memory(
        model,
        ModelShape.of_config(config),
        counts,
        gpu_memory_gb,
        drafter=drafter,
        drafter_bytes=_drafter_bytes(drafter) if drafter else 0,
        num_feature_layers=num_feature_layers,
    )
    print_result(plan, show_memory, as_json=as_json, no_color=no_color)


def _drafter_bytes(drafter: str) -> int:
    """Bytes of the drafter's weights: as they are stored, or by its shape where they are not here."""
    try:
        folder = head_folder(drafter)
    except ModelNotFoundError:
        folder = _folder(drafter)
    stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return stored or 2 * ModelShape.of_config(read_json(folder / "config.json")).num_parameters


def _folder(model: str) -> Path:
    """A folder, a model of the cache, or the configuration of one that comes with Pilotfish."""
    if model in known_shapes():
        return _SHAPES / model
    try:
        found = cached_folder(resolve(model), ModelCache(Path(default_cache_dir()).expanduser()))
    except ModelNotFoundError as error:
        raise ModelNotFoundError(f"{error}, nor {_SHAPES_ARE} {', '.join(known_shapes())}") from None
    if found is None:
        raise ModelNotFoundError(
            f"--model {model} is not on this machine: pull it with `pilotfish models pull {model}`, give a folder with "
            f"its config.json, or {_SHAPES_ARE} {', '.join(known_shapes())}"
        )
    return found


def known_shapes() -> list[str]:
    """Names of models whose configuration comes with Pilotfish."""
    return sorted(path.name for path in _SHAPES.iterdir())
