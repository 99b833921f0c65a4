"""A deeper model of the same function: blocks whose output projections are zero add nothing to the residual stream."""

import json
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

_BLOCK = "model.layers."
_ADDS = ("self_attn.o_proj.", "mlp.down_proj.")
"""What a Llama-style block adds to the residual stream comes out of these."""
_WEIGHTS = "model.safetensors"


def deepened(source: Path, folder: Path, factor: int) -> Path:
    """The folder, with a model that has `factor` times the blocks of the source's and the same logits to the bit.

    Each block of the source stands behind factor - 1 copies of itself that compute all it computes and add nothing: so
    they are spread evenly, and none is the last. Written as a Hugging Face folder; one that is there is kept. source:
    a Llama-style model in one file of weights. Raises OSError.
    """
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as partial:
            whole = _copied(source, Path(partial) / folder.name, "num_hidden_layers", factor)
            save_file(_deep_tensors(source, factor), whole / _WEIGHTS, metadata={"format": "pt"})
            whole.rename(folder)
    return folder


def deepened_exit(source: Path, folder: Path, factor: int) -> Path:
    """The folder, with a trained exit of the source's target for that target deepened: the same hidden states leave
    after `factor` times the blocks. Written anew each time. Raises OSError."""
    shutil.rmtree(folder, ignore_errors=True)
    return _copied(source, folder, "exit_layer", factor)


def _copied(source: Path, folder: Path, key: str, factor: int) -> Path:
    """A copy with `factor` times the value of a key of config.json."""
    shutil.copytree(source, folder)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config[key] *= factor
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    return folder


def _deep_tensors(source: Path, factor: int) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    with safe_open(source / _WEIGHTS, framework="pt") as weights:
        for name in weights.keys():  # noqa: SIM118  # it is no mapping
            tensors |= _repeated(name, weights.get_tensor(name), factor)
    return tensors


def _repeated(name: str, tensor: torch.Tensor, factor: int) -> dict[str, torch.Tensor]:
    """The tensor by its new name, and those of the copies before it."""
    if not name.startswith(_BLOCK):
        return {name: tensor}
    index, _, part = name.removeprefix(_BLOCK).partition(".")
    first = factor * int(index)
    copies = [torch.zeros_like(tensor) if part.startswith(_ADDS) else tensor.clone() for _ in range(factor - 1)]
    return {f"{_BLOCK}{first + place}.{part}": each for place, each in enumerate((*copies, tensor))}
