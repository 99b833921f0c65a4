"""Reads parts of tensors out of a folder's safetensors files, without mapping them: a part costs its own bytes of
memory, no more."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pilotfish.errors import ModelError, UnsupportedModelError
from pilotfish.parallel.sizes import TensorCut, bounds

_PLAIN_DTYPES = frozenset({"BF16", "F16", "F32", "F64"})


class Checkpoint:
    """The tensors of a model folder. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        """Opens every file. Raises ModelError for one that cannot be read."""
        self._folder = folder
        self._files = ExitStack()
        self._tensors: dict[str, Any] = {}
        for path in sorted(folder.glob("*.safetensors")):
            try:
                file = self._files.enter_context(safe_open(path, framework="pt", device="cpu", backend="pread"))
            except (OSError, SafetensorError) as error:
                self._files.close()
                raise ModelError(f"{path} cannot be read: {error}") from error
            self._tensors.update(dict.fromkeys(file.keys(), file))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def read(self, name: str, cut: TensorCut, rank: int, num_ranks: int, dtype: torch.dtype) -> Tensor:
        """A rank's part of a tensor; what pads it is zero.

        Raises: ModelError where the tensor is missing; UnsupportedModelError for one that is nothing without a scale.
        """
        if name not in self._tensors:
            raise ModelError(f"the weights in {self._folder} lack the tensor {name}, which config.json asks for")
        view = self._tensors[name].get_slice(name)
        if (stored := view.get_dtype()) not in _PLAIN_DTYPES:
            raise UnsupportedModelError(
                f"the tensor {name} in {self._folder} is stored as {stored}: parts are read of weights "
                "that are not quantised; take the model as it was before (target.engine.quantization rounds a target's "
                "weights as they are loaded)"
            )
        if cut is TensorCut.WHOLE:
            return torch.as_tensor(self._tensors[name].get_tensor(name)).to(dtype)
        shape = view.get_shape()
        dimension = 1 if cut is TensorCut.COLUMNS else 0
        part = bounds(shape[dimension], rank, num_ranks)
        tensor: Tensor = view[:, part.start : part.end] if dimension else view[part.start : part.end]
        missing = part.padded - tensor.shape[dimension]
        if missing:
            padding = list(tensor.shape)
            padding[dimension] = missing
            tensor = torch.cat((tensor, tensor.new_zeros(padding)), dim=dimension)
        return tensor.to(dtype).contiguous()
