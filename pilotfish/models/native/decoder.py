"""Llama-style decoders on the native CPU kernels: one call a step, batch-invariant by construction."""

from __future__ import annotations

import ctypes
import math
import weakref
from array import array
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pilotfish.config import CpuKernels, Quantization
from pilotfish.models.capture import layers_to_capture
from pilotfish.models.decoder import StepInput
from pilotfish.models.native.build import find_kernels, load_kernels
from pilotfish.models.native.layout import PackedWeights, StepStruct, huge_empty
from pilotfish.models.native.step import LogitsBuffer, NativeStepRows
from pilotfish.types import BLOCK_SIZE


class NativePool:
    """Keys and values of all layers in the kernels' block layouts, one allocation."""

    def __init__(self, num_blocks: int, num_layers: int, num_kv_heads: int, head_dim: int) -> None:
        self.num_blocks = num_blocks
        shape = (num_layers, 2, num_blocks, num_kv_heads * head_dim * BLOCK_SIZE)
        self.tensor = huge_empty(math.prod(shape)).view(shape)  # fresh pages are zero
        self.num_bytes = self.tensor.nbytes


class NativeDecoder:
    """See Decoder. Takes the weights out of the model; check `layout.unsupported_reason` first."""

    name = "native"

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        max_context_tokens: int,
        num_threads: int,
        cache_dir: Path,
        quantization: Quantization = "none",
        kernels: CpuKernels = "auto",
    ) -> None:
        """Raises NativeKernelsUnavailableError; ConfigError if the processor lacks these kernels."""
        self.kernels = load_kernels(find_kernels(cache_dir, kernels))
        self.uses_tiles = bool(self.kernels.pilotfish_uses_tiles())
        self.vocab_size: int = model.config.vocab_size
        self.max_context_tokens = max_context_tokens
        self.dtype = torch.bfloat16
        self.device = torch.device("cpu")
        self.weights = PackedWeights(model, max_context_tokens, quantization, num_threads)
        self.engine = self.kernels.pilotfish_create(ctypes.addressof(self.weights.model_struct), num_threads)
        weakref.finalize(self, self.kernels.pilotfish_destroy, self.engine)
        self._pool: NativePool | None = None
        self._logits = LogitsBuffer(self.vocab_size)
        self._captured_layers: array[int] | None = None

    def allocate(self, num_blocks: int) -> NativePool:
        struct = self.weights.model_struct
        pool = self._pool = NativePool(num_blocks, struct.num_layers, struct.kv_heads, struct.head_dim)
        pointers = ctypes.c_void_p * struct.num_layers
        keys = pointers(*(layer[0].data_ptr() for layer in pool.tensor))
        values = pointers(*(layer[1].data_ptr() for layer in pool.tensor))
        self.kernels.pilotfish_set_pools(self.engine, keys, values)
        return pool

    def move_kv(self, moves: Sequence[tuple[int, int]]) -> None:
        flat = array("q", chain.from_iterable(moves))
        self.kernels.pilotfish_move_kv(self.engine, flat.buffer_info()[0], len(moves))

    def capture(self, layers: Sequence[int]) -> None:
        wanted = layers_to_capture(layers, self._captured_layers, self.weights.model_struct.num_layers)
        self._captured_layers = array("q", wanted)

    def forward(self, step: StepInput) -> Tensor:
        if self._pool is None:
            raise RuntimeError("allocate a KV pool before the first forward")
        rows = NativeStepRows(step)
        logits = self._logits.of(len(step.logit_rows))
        struct = rows.struct(logits.data_ptr())
        if self._captured_layers is not None:
            self._keep_hidden_states(struct, self._captured_layers)
        self.kernels.pilotfish_forward(self.engine, ctypes.addressof(struct))  # ctypes releases the GIL
        return logits

    def _keep_hidden_states(self, struct: StepStruct, layers: array[int]) -> None:
        hidden: int = self.weights.model_struct.hidden
        self.last_hidden = torch.empty(struct.num_logit_rows, hidden, dtype=self.dtype)
        self.features = torch.empty(struct.rows, len(layers) * hidden, dtype=self.dtype)
        struct.captured_layers, struct.num_captured = layers.buffer_info()
        struct.features = self.features.data_ptr()
        struct.last_hidden = self.last_hidden.data_ptr()
