"""Folders of a draft head: tensors in safetensors beside a config.json, which says sizes and target. Read with checks,
written as a whole."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pilotfish.errors import ModelError, ModelNotFoundError, UnsupportedModelError

HeadT = TypeVar("HeadT", bound=nn.Module)


def positive(values: Mapping[str, Any], path: Path, name: str, default: int | None = None) -> int:
    """A size that the config.json at path holds. Raises UnsupportedModelError for anything but a positive integer."""
    value = values.get(name, default)
    if not isinstance(value, int) or value < 1:
        raise UnsupportedModelError(f"{path}: {name} is {value!r}; it must be a positive whole number")
    return value


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder.

    Raises: ModelNotFoundError when it has no safetensors; ModelError when a file cannot be read.
    """
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ModelNotFoundError(f"{folder} has no *.safetensors file (pickled heads are not read: convert them)")
    tensors: dict[str, Tensor] = {}
    for path in paths:
        try:
            tensors.update(load_file(path))
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{path} cannot be read: {error}") from error
    return tensors


def fill_head(head: HeadT, tensors: Mapping[str, Tensor], folder: Path, dtype: torch.dtype) -> HeadT:
    """The head with the folder's tensors, floats as dtype, not to be trained. Raises as check_tensors does."""
    check_tensors(head.state_dict(), tensors, folder)
    head.load_state_dict(dict(tensors))
    return head.to(dtype).eval().requires_grad_(False)


def check_tensors(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], folder: Path) -> None:
    """Raise ModelError naming a tensor that is missing or has the wrong shape, UnsupportedModelError an unknown one."""
    missing = sorted(wanted.keys() - found.keys())
    if missing:
        raise ModelError(f"the head in {folder} lacks {len(missing)} tensors: {', '.join(missing[:3])}")
    for name, tensor in wanted.items():
        if found[name].shape != tensor.shape:
            raise ModelError(
                f"the head in {folder}: {name} has the shape {list(found[name].shape)}; "
                f"its config.json asks for {list(tensor.shape)}"
            )
    unknown = sorted(found.keys() - wanted.keys())
    if unknown:
        raise UnsupportedModelError(f"the head in {folder} has tensors of no known use: {', '.join(unknown[:3])}")


def check_token_ids(token_ids: Tensor, vocab_size: int, name: str, folder: Path) -> None:
    """Raise ModelError unless token_ids, which the map `name` leads to, are distinct tokens of the vocabulary."""
    if token_ids.dtype != torch.int64:
        raise ModelError(f"the head in {folder}: {name} must be int64; it is {token_ids.dtype}")
    if int(token_ids.min()) < 0 or int(token_ids.max()) >= vocab_size:
        raise ModelError(f"the head in {folder}: {name} leads outside the target's vocabulary of {vocab_size} tokens")
    if len(set(token_ids.tolist())) != len(token_ids):
        raise ModelError(f"the head in {folder}: {name} maps two draft tokens to one target token")


def write_head(folder: Path, state: Mapping[str, Tensor], config: Mapping[str, Any], dtype: torch.dtype) -> None:
    """Write model.safetensors and config.json; each appears whole or not at all. Floats are stored as dtype.

    Raises: OSError when the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: (tensor.to(dtype) if tensor.is_floating_point() else tensor).detach().contiguous()
        for name, tensor in state.items()
    }
    weights, text = folder / ".model.safetensors.partial", folder / ".config.json.partial"
    try:
        save_file(tensors, weights, metadata={"format": "pt"})
        text.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        weights.chmod(text.stat().st_mode)  # the library lets only the owner read
        weights.replace(folder / "model.safetensors")
        text.replace(folder / "config.json")
    except SafetensorError as error:  # the library's form of an OSError of writing
        raise OSError(f"cannot write {weights}: {error}") from error
    finally:
        weights.unlink(missing_ok=True)
        text.unlink(missing_ok=True)
