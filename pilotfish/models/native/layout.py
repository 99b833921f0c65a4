"""The structs of kernels.cpp, and a transformers model's weights in their layouts."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pilotfish.config import Quantization
from pilotfish.models.file_pages import release_pages
from pilotfish.models.native.quantise import BLOCK_INPUTS, pack, pack_bfloat16, quantise_as

LANES = 16
"""Outputs in one vector."""

GROUP = 32
"""Outputs that lie together in a packed weight."""

_ARENA_WEIGHTS = 32 << 20
"""Weights (bfloat16) in a mapping that many tensors share: most are smaller than a huge page."""

MODEL_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Architectures that are: norm, rotary attention, norm, SwiGLU."""


class Format(IntEnum):
    """How the kernels keep a linear's weights; see weights.h."""

    BFLOAT16 = 0
    INT8 = 1
    INT4 = 2


class WeightsStruct(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("format", ctypes.c_int64), ("rounds_inputs", ctypes.c_int64)]


def _fields(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class LayerStruct(ctypes.Structure):
    _fields_ = [
        *_fields(ctypes.c_void_p, "input_norm qkv_bias query_norm key_norm post_norm"),
        *_fields(WeightsStruct, "qkv output gate_up down"),
        *_fields(ctypes.c_void_p, "keys values"),
        *_fields(ctypes.c_int64, "window first_key"),
    ]


class ModelStruct(ctypes.Structure):
    _fields_ = [
        *_fields(ctypes.c_int64, "hidden heads kv_heads head_dim intermediate vocab num_layers max_positions"),
        *_fields(ctypes.c_float, "eps scale"),
        *_fields(ctypes.c_void_p, "embedding final_norm"),
        ("head", WeightsStruct),
        *_fields(ctypes.c_void_p, "cosine sine layers"),
    ]


class StepStruct(ctypes.Structure):
    _fields_ = [
        *_fields(ctypes.c_int64, "rows num_logit_rows"),
        *_fields(ctypes.c_void_p, "token_ids positions slots row_table tables"),
        ("table_width", ctypes.c_int64),
        *_fields(ctypes.c_void_p, "logit_rows logits"),
        ("captured_layers", ctypes.c_void_p),
        ("num_captured", ctypes.c_int64),
        *_fields(ctypes.c_void_p, "features last_hidden roots ancestors"),
    ]


def unsupported_reason(model: PreTrainedModel, quantization: Quantization = "none") -> str | None:
    """Why the native kernels cannot run the model; None when they can."""
    config: Any = model.config
    if config.model_type not in MODEL_TYPES:
        return f"model type {config.model_type!r} is not one of {', '.join(sorted(MODEL_TYPES))}"
    if model.dtype is not torch.bfloat16 or model.device.type != "cpu":
        return f"they need bfloat16 on cpu, the model is {model.dtype} on {model.device}"
    if config.hidden_act != "silu":
        return f"activation {config.hidden_act!r} is not silu"
    first: Any = model.model.layers[0]
    attention, mlp = first.self_attn, first.mlp
    if attention.o_proj.bias is not None or mlp.gate_proj.bias is not None:
        return "biases on the output or feed-forward linears"
    sizes = {
        "hidden_size": (config.hidden_size, GROUP),
        "head_dim": (attention.head_dim, LANES),
        "the width of q, k and v": (attention.q_proj.out_features + 2 * attention.k_proj.out_features, GROUP),
        "intermediate_size": (config.intermediate_size, LANES),
        "vocab_size": (config.vocab_size, GROUP),
    }
    if quantization in ("int8", "int4"):
        sizes["intermediate_size"] = (config.intermediate_size, BLOCK_INPUTS)
        sizes["the width of all query heads"] = (attention.o_proj.in_features, BLOCK_INPUTS)
    return wrong_size(sizes)


def wrong_size(sizes: Mapping[str, tuple[int, int]]) -> str | None:
    """What the kernels cannot cut, of (size, what it must be a multiple of) by name."""
    for name, (size, multiple) in sizes.items():
        if size % multiple:
            return f"{name} is {size}, not a multiple of {multiple}"
    return None


class Packer:
    """Copies tensors into the kernels' layouts and owns the copies, to which the structs point."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._arena = torch.empty(0, dtype=torch.bfloat16)
        self._lock = Lock()

    def keep(self, tensor: Tensor) -> int:
        kept = tensor.detach().clone().contiguous()
        self._tensors.append(kept)
        return kept.data_ptr()

    def pack(
        self, weights: Sequence[Tensor], interleave: bool = False, quantization: Quantization = "none"
    ) -> WeightsStruct:
        """Pack [N, K] weights one below the other, or block by block in turn."""
        rows = torch.cat([weight.detach() for weight in weights])
        if interleave:
            rows = rows.view(len(weights), -1, LANES, rows.shape[1]).transpose(0, 1).reshape(rows.shape)
        quantised = None if quantization == "none" else quantise_as(rows, quantization)
        if quantised is None:
            data, weight_format = pack_bfloat16(rows), Format.BFLOAT16
        else:
            data, weight_format = pack(*quantised), Format[quantised[1].upper()]
        packed = self._allocate(data.nbytes // 2)
        packed.view(data.dtype).view(data.shape).copy_(data)
        return WeightsStruct(packed.data_ptr(), weight_format, quantised is not None and quantization != "lossless")

    def _allocate(self, count: int) -> Tensor:
        with self._lock:  # layers are packed at the same time
            if count > len(self._arena):
                self._arena = huge_empty(max(count, _ARENA_WEIGHTS))
                self._tensors.append(self._arena)
            allocated, self._arena = self._arena[:count], self._arena[count:]
        return allocated


class PackedWeights:
    """A model's structs and what they point to; the model's own weights can go."""

    def __init__(
        self,
        model: PreTrainedModel,
        max_positions: int,
        quantization: Quantization = "none",
        num_threads: int = 1,
    ) -> None:
        self._packer = packer = Packer()
        self._quantization = quantization
        config: Any = model.config
        body: Any = model.model
        attention = body.layers[0].self_attn
        head_weight: Tensor = model.get_output_embeddings().weight
        tied = head_weight.data_ptr() == body.embed_tokens.weight.data_ptr()
        cosine, sine = _rotary_tables(body, max_positions)
        with ThreadPoolExecutor(num_threads) as pool:
            self.layer_structs = (LayerStruct * config.num_hidden_layers)(*pool.map(self._layer, body.layers))
        self.model_struct = ModelStruct(
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=attention.head_dim,
            intermediate=config.intermediate_size,
            vocab=config.vocab_size,
            num_layers=config.num_hidden_layers,
            max_positions=max_positions,
            eps=config.rms_norm_eps,
            scale=attention.scaling,
            # A tied embedding is read from the packed head: 16 columns of a block are 16 tokens.
            embedding=None if tied else packer.keep(body.embed_tokens.weight),
            final_norm=packer.keep(body.norm.weight),
            # Four bits would cost more agreement here than they save time (docs/decisions/0004).
            head=packer.pack([head_weight], quantization="int8" if quantization == "int4" else quantization),
            cosine=packer.keep(cosine),
            sine=packer.keep(sine),
            layers=ctypes.addressof(self.layer_structs),
        )
        for weight in (head_weight, body.embed_tokens.weight):
            release_pages(weight)

    def _layer(self, layer: Any) -> LayerStruct:
        attention, mlp = layer.self_attn, layer.mlp
        window = sliding_window(attention)
        struct = layer_struct(self._packer, layer, quantization=self._quantization, window=window)
        projections = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
        for projection in (*projections, mlp.gate_proj, mlp.up_proj, mlp.down_proj):
            # Freed as soon as packed: the peak is a layer for each thread above the weights.
            release_pages(projection.weight)
            projection.weight = nn.Parameter(torch.empty(0, dtype=torch.bfloat16), requires_grad=False)
        return struct


def layer_struct(packer: Packer, layer: Any, *, quantization: Quantization = "none", **more: int) -> LayerStruct:
    """The struct of a decoder layer whose modules have Llama's names. more: other fields of the struct."""
    attention, mlp = layer.self_attn, layer.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    biases = [projection.bias for projection in projections if projection.bias is not None]
    return LayerStruct(
        input_norm=packer.keep(layer.input_layernorm.weight),
        qkv=packer.pack([projection.weight for projection in projections], quantization=quantization),
        qkv_bias=packer.keep(torch.cat(biases)) if biases else None,
        query_norm=packer.keep(attention.q_norm.weight) if hasattr(attention, "q_norm") else None,
        key_norm=packer.keep(attention.k_norm.weight) if hasattr(attention, "k_norm") else None,
        output=packer.pack([attention.o_proj.weight], quantization=quantization),
        post_norm=packer.keep(layer.post_attention_layernorm.weight),
        gate_up=packer.pack([mlp.gate_proj.weight, mlp.up_proj.weight], interleave=True, quantization=quantization),
        down=packer.pack([mlp.down_proj.weight], quantization=quantization),
        **more,
    )


def whole_groups(weight: Tensor) -> Tensor:
    """The weight [N, K] with rows of zeros to a multiple of GROUP, which the kernels work in."""
    padding = -weight.shape[0] % GROUP
    return torch.cat((weight, weight.new_zeros(padding, weight.shape[1]))) if padding else weight


def sliding_window(attention: Any) -> int:
    """The layer's own window where it has one (Qwen), else the model's (Mistral); 0: none."""
    config = attention.config
    window: int | None = getattr(attention, "sliding_window", getattr(config, "sliding_window", None))
    return window or 0 if config.model_type != "llama" else 0


def huge_empty(count: int) -> Tensor:
    """A tensor of count bfloat16, uninitialised, in huge pages where the kernel has some: fewer TLB misses."""
    size = count * 2
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(mapping, dtype=torch.bfloat16)


def _rotary_tables(body: Any, max_positions: int) -> tuple[Tensor, Tensor]:
    """Tables of cos and sin [max_positions, D / 2] float32 from the model's own rotary module (scaling included)."""
    positions = torch.arange(max_positions)[None]
    cosine, sine = body.rotary_emb(torch.empty(0, dtype=torch.float32), positions)
    half = cosine.shape[-1] // 2
    return cosine[0, :, :half].float(), sine[0, :, :half].float()
