"""`python -m pilotfish.models.store.merge BASE ADAPTER FOLDER`: a model with a LoRA adapter added to its weights.
`conversion` runs it."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from pilotfish.errors import ModelError, UnsupportedModelError
from pilotfish.models.store.adapter import CHAT_TEMPLATE, TEXT_SUFFIXES, WEIGHTS, Adapter
from pilotfish.models.store.conversion import report_failures
from pilotfish.models.store.folder import read_metadata, tensor_shapes, text_fields, weight_files

_PREFIX = "base_model.model."
_LORA = re.compile(r"(?P<module>.+)\.lora_(?P<kind>embedding_)?(?P<matrix>[AB])(\.weight)?")
_EMBEDDING = re.compile(r"embed|\b(wte|lm_head)\b")
_OUTPUTS = frozenset({"lm_head.weight", "embed_out.weight"})
_PLAIN_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass
class WeightChange:
    """What an adapter does to one weight: it is replaced, or B·A times scale is added; or both, as peft saves an
    embedding that has matrices."""

    matrices: dict[str, Tensor] = field(default_factory=dict)
    """A: [rank, in] and B: [out, rank]; of an embedding in is the vocabulary."""
    is_transposed: bool = False
    scale: float = 1.0
    whole: Tensor | None = None

    @property
    def shapes(self) -> Iterator[list[int]]:
        """Shape of the weight that each part of the change is made for."""
        if self.whole is not None:
            yield list(self.whole.shape)
        if self.matrices:
            shape = [self.matrices["B"].shape[0], self.matrices["A"].shape[1]]
            yield shape[::-1] if self.is_transposed else shape

    def applied(self, weight: Tensor) -> Tensor:
        """The weight with the change, computed in float32 and rounded once."""
        start = weight if self.whole is None else self.whole
        if not self.matrices:
            return start.to(weight.dtype)
        delta = self.matrices["B"].float() @ self.matrices["A"].float() * self.scale
        return (start.float() + (delta.T if self.is_transposed else delta)).to(weight.dtype).contiguous()


def read_changes(adapter: Adapter) -> dict[str, WeightChange]:
    """An adapter's changes by the name of the weight. Raises ModelError for files that are broken."""
    path, changes = adapter.folder / WEIGHTS, dict[str, WeightChange]()
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    for key, tensor in tensors.items():
        name = key.removeprefix(_PREFIX).replace(".base_layer.", ".")
        if (found := _LORA.fullmatch(name)) is None:
            changes.setdefault(name, WeightChange()).whole = tensor  # modules_to_save, biases and embeddings
            continue
        change = changes.setdefault(f"{found['module']}.weight", WeightChange())
        change.matrices[found["matrix"]] = tensor
        change.is_transposed = bool(found["kind"]) or adapter.is_transposed
        if found["matrix"] == "A":
            change.scale = adapter.scale(found["module"], tensor.shape[0])
    for name, change in changes.items():
        if change.matrices and change.matrices.keys() != {"A", "B"}:
            raise ModelError(f"{path} holds one of the two matrices of {name}: save the adapter again")
    return changes


def check_changes(changes: dict[str, WeightChange], base: Path, adapter: Path) -> None:
    """Raise UnsupportedModelError unless the base model has each of the weights, in that shape. Reads no weights."""
    advice = f"the adapter in {adapter} does not fit {base}"
    config = read_metadata(base).config
    if config.get("quantization_config"):
        raise UnsupportedModelError(
            f"{base} is quantised, and an adapter is added to weights that are not: name the model as it was before "
            "(target.engine.quantization rounds the merged weights)"
        )
    shapes = dict(tensor_shapes(base))
    is_tied = text_fields(config).get("tie_word_embeddings", not _OUTPUTS & shapes.keys())
    for name, change in changes.items():
        if is_tied and _EMBEDDING.search(name):
            raise UnsupportedModelError(
                f"{advice}: it changes {name}, and the model's embedding is its output layer as well: merge it with "
                "peft, and serve that folder"
            )
        if name not in shapes:
            raise UnsupportedModelError(f"{advice}, which has no weight {name}: name the model it was trained for")
        for shape in change.shapes:
            if shape != list(shapes[name]):
                raise UnsupportedModelError(
                    f"{advice}: {name} has the shape {list(shapes[name])} there, and {shape} in the adapter"
                )


def merge_adapter(base: Path, adapter_folder: Path, folder: Path) -> None:
    """Write the base model with the adapter added to its weights; everything else is the base model's, but for a chat
    template of the adapter.

    Raises UnsupportedModelError for an adapter that cannot be added, ModelError for broken files, OSError.
    """
    adapter = Adapter.read(adapter_folder)
    adapter.check_tokenizer(base)
    changes = read_changes(adapter)
    check_changes(changes, base, adapter_folder)
    weights = weight_files(base)
    for path in base.iterdir():
        if path.is_file() and path.suffix in TEXT_SUFFIXES and path.name != "pilotfish.json":
            shutil.copyfile(path, folder / path.name)
    if (template := adapter_folder / CHAT_TEMPLATE).is_file():
        shutil.copyfile(template, folder / CHAT_TEMPLATE)
    for path in weights:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 -- no mapping
            metadata = file.metadata()
        for name in tensors.keys() & changes.keys():
            if tensors[name].dtype not in _PLAIN_DTYPES:
                raise UnsupportedModelError(f"{name} in {path} is stored as {tensors[name].dtype}: it is quantised")
            tensors[name] = changes[name].applied(tensors[name])
        save_file(tensors, folder / path.name, metadata=metadata)


def main() -> int:
    """Merge as the command line says; returns the exit status."""
    base, adapter, folder = (Path(argument) for argument in sys.argv[1:])
    return report_failures(lambda: merge_adapter(base, adapter, folder))


if __name__ == "__main__":
    sys.exit(main())
