"""What a model's generation_config.json says of sampling. Torch-free."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pilotfish.errors import InvalidRequestError, UnsupportedModelError
from pilotfish.models.store.folder import read_json
from pilotfish.types import SamplingParams

FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""Fields that are taken, as by vLLM. `do_sample` is not: a request that names no temperature is sampled."""


def sampling_defaults(folder: Path) -> dict[str, float]:
    """The fields that the file sets, by the names of SamplingParams; none without a file.

    Raises UnsupportedModelError, naming the file and the field, for a value that no request could have.
    """
    path = folder / "generation_config.json"
    values = read_json(path) if path.is_file() else {}
    found = {name: values[name] for name in FIELDS if values.get(name) is not None}
    if found.get("top_k") == -1:
        found["top_k"] = 0  # vLLM's word for all
    for name, value in found.items():
        kinds = (int,) if name == "top_k" else (int, float)
        try:
            if isinstance(value, bool) or not isinstance(value, kinds):
                raise InvalidRequestError(f"{name} is {value!r}; it must be a number")
            msgspec.structs.replace(SamplingParams(), **{name: value})
        except InvalidRequestError as error:
            raise UnsupportedModelError(
                f"{path}: {error}. Correct it, or set orchestrator.generation_config to none"
            ) from error
    return found
