"""Exits on the native CPU kernels, from a native decoder."""

from __future__ import annotations

import ctypes
import weakref

import torch
from torch import Tensor

from pilotfish.drafters.early_exit.module import ExitHead
from pilotfish.errors import UnsupportedModelError
from pilotfish.models.decoder import StepInput
from pilotfish.models.native.decoder import NativeDecoder, NativePool
from pilotfish.models.native.layout import ModelStruct, Packer, layer_struct, sliding_window, whole_groups, wrong_size
from pilotfish.models.native.quantise import BLOCK_INPUTS
from pilotfish.models.native.step import LogitsBuffer, NativeStepRows


class ExitStruct(ctypes.Structure):
    _fields_ = [("model", ModelStruct), ("num_layers", ctypes.c_int64)]


class NativeExit:
    """See Exit. The trained block and its projection are int8: what they draft is verified, and half the bytes take
    less time."""

    def __init__(self, decoder: NativeDecoder, num_layers: int, head: ExitHead | None) -> None:
        """num_layers: of the decoder. head: None: bare. Raises UnsupportedModelError for sizes that the kernels cannot
        cut."""
        self.is_trained = head is not None
        self._decoder = decoder  # it must outlive the exit
        self._packer = Packer()  # owns what the structs point to
        self._model = ModelStruct.from_buffer_copy(decoder.weights.model_struct)
        self._model.num_layers = 0
        self.draft_token_ids = torch.arange(decoder.vocab_size)
        if head is not None:
            self._add(head)
        struct = ExitStruct(self._model, num_layers)
        kernels = decoder.kernels
        self._engine = kernels.pilotfish_create_exit(decoder.engine, ctypes.addressof(struct))  # copies the struct
        weakref.finalize(self, kernels.pilotfish_destroy_exit, self._engine)
        self._logits = LogitsBuffer(self._model.vocab)
        self._pool: NativePool | None = None

    def allocate(self, num_blocks: int) -> int:
        if not self.is_trained:
            return 0
        pool = self._pool = NativePool(num_blocks, 1, self._model.kv_heads, self._model.head_dim)
        keys, values = pool.tensor[0]
        self._decoder.kernels.pilotfish_set_exit_pool(self._engine, keys.data_ptr(), values.data_ptr())
        return pool.num_bytes

    def forward(self, step: StepInput) -> Tensor:
        logits = self._logits.of(len(step.logit_rows))
        self._run(step, logits.data_ptr(), None)
        return logits[:, : len(self.draft_token_ids)]

    def take_in(self, step: StepInput, states: Tensor) -> None:
        states = states.contiguous()
        self._run(step, 0, states.data_ptr())

    def _run(self, step: StepInput, logits: int, states: int | None) -> None:
        rows = NativeStepRows(step)
        struct = rows.struct(logits)
        self._decoder.kernels.pilotfish_forward_exit(self._engine, ctypes.addressof(struct), states)

    def _add(self, head: ExitHead) -> None:
        model, packer = self._model, self._packer
        sizes = {
            "intermediate_size": (model.intermediate, BLOCK_INPUTS),
            "the width of all query heads": (model.heads * model.head_dim, BLOCK_INPUTS),
        }
        if (reason := wrong_size(sizes)) is not None:
            raise UnsupportedModelError(
                f"a trained exit whose {reason}, does not run on the native kernels: set engine.compile to false"
            )
        window = sliding_window(head.block.self_attn)
        self._block = layer_struct(packer, head.block, quantization="int8", window=window)
        weight = whole_groups(head.lm_head.weight)
        model.num_layers = 1
        model.layers = ctypes.addressof(self._block)
        model.final_norm = packer.keep(head.norm.weight)
        model.head, model.vocab = packer.pack([weight], quantization="int8"), len(weight)
        self.draft_token_ids = head.token_map
