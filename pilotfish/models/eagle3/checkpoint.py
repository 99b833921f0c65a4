"""Reading and writing EAGLE-3 heads in the published layout: model.safetensors and config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pilotfish.errors import ModelError, ModelNotFoundError, UnsupportedModelError
from pilotfish.models.eagle3.config import Eagle3Config, eagle3_config_json, read_eagle3_config
from pilotfish.models.eagle3.module import Eagle3Head

_MAPS = ("d2t", "t2d")
_EMBEDDINGS = "embed_tokens.weight"
_OTHER_NAMES = (("layers.0.", "midlayer."), ("model.", ""))
"""Prefixes that converters of published heads use."""


def load_eagle3(folder: Path, *, num_target_layers: int, dtype: torch.dtype = torch.bfloat16) -> Eagle3Head:
    """The head in a folder.

    Raises: ModelNotFoundError when a file is missing; ModelError for tensors that are missing, have the wrong shape
    or cannot be read; UnsupportedModelError for a head that the runtime cannot run.
    """
    config = read_eagle3_config(folder, num_target_layers=num_target_layers)
    tensors = {_own_name(name): tensor for name, tensor in _read_tensors(folder).items()}
    head = Eagle3Head(config)
    if config.draft_vocab_size == config.vocab_size:
        # Heads over the whole vocabulary may leave the maps out.
        tensors.setdefault("d2t", head.d2t)
        tensors.setdefault("t2d", head.t2d)
    if _EMBEDDINGS in tensors:
        head.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
    _check_tensors(head.state_dict(), tensors, folder)
    _check_vocabulary(config, tensors["d2t"], tensors["t2d"], folder)
    head.load_state_dict({name: tensors[name] for name in head.state_dict()})
    return head.to(dtype).eval().requires_grad_(False)


def check_fits(config: Eagle3Config, *, hidden_size: int, vocab_size: int, fingerprint: str, source: str) -> None:
    """Raise ModelError when a head was made for another target or tokenizer; source names the head."""
    if config.hidden_size != hidden_size:
        raise ModelError(
            f"{source} was trained for another target: its hidden size is {config.hidden_size}, "
            f"the target's {hidden_size}"
        )
    if config.vocab_size != vocab_size:
        raise ModelError(
            f"{source} was trained for another target: its vocabulary has {config.vocab_size} tokens, "
            f"the target's {vocab_size}"
        )
    if config.tokenizer_fingerprint and config.tokenizer_fingerprint != fingerprint:
        raise ModelError(f"{source} was trained with another tokenizer than the target's")


def save_eagle3(head: Eagle3Head, folder: Path, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write model.safetensors and config.json into a folder; each appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach().contiguous() if name in _MAPS else tensor.detach().to(dtype).contiguous()
        for name, tensor in head.state_dict().items()
    }
    weights, config = folder / ".model.safetensors.partial", folder / ".config.json.partial"
    try:
        save_file(tensors, weights, metadata={"format": "pt"})
        config.write_text(json.dumps(eagle3_config_json(head.config), indent=2) + "\n", encoding="utf-8")
        weights.replace(folder / "model.safetensors")
        config.replace(folder / "config.json")
    finally:
        weights.unlink(missing_ok=True)
        config.unlink(missing_ok=True)


def _read_tensors(folder: Path) -> dict[str, Tensor]:
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


def _own_name(name: str) -> str:
    for prefix, own in reversed(_OTHER_NAMES):
        if name.startswith(prefix):
            name = own + name.removeprefix(prefix)
    return name


def _check_tensors(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], folder: Path) -> None:
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


def _check_vocabulary(config: Eagle3Config, d2t: Tensor, t2d: Tensor, folder: Path) -> None:
    if d2t.dtype != torch.int64 or t2d.dtype != torch.bool:
        raise ModelError(f"the head in {folder}: d2t must be int64 and t2d bool; they are {d2t.dtype} and {t2d.dtype}")
    token_ids = torch.arange(len(d2t)) + d2t
    if int(token_ids.min()) < 0 or int(token_ids.max()) >= config.vocab_size:
        raise ModelError(
            f"the head in {folder}: d2t leads outside the target's vocabulary of {config.vocab_size} tokens"
        )
    if len(set(token_ids.tolist())) != len(token_ids):
        raise ModelError(f"the head in {folder}: d2t maps two draft tokens to one target token")
    if not torch.equal(token_ids.sort().values, t2d.nonzero().squeeze(1)):
        raise ModelError(f"the head in {folder}: d2t and t2d name different tokens")
