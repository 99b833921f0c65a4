"""How much memory the ranks of a target take, and what is left for its KV cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pilotfish.errors import UnsupportedModelError
from pilotfish.types import BLOCK_SIZE

USABLE_SHARE = 0.9
"""Of a GPU's memory, for weights and KV cache: activations, CUDA's own and the allocator's gaps take the rest."""
_BFLOAT16_BYTES = 2
_SCALE_BYTES = 4
WEIGHTS = ("bfloat16", "int8 or fp8")
_MODEL_TYPES = ("llama", "mistral", "qwen2", "qwen3", "gemma3", "gemma3_text")
"""Dense decoders whose layers are attention and a gated MLP. Others would be counted wrong."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model's matrices, by its config.json. Biases, and norms but two a layer, are left out: below 0.1 %."""

    architecture: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    is_tied: bool
    """Whether the embedding is the output projection too."""

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> ModelShape:
        """Raises UnsupportedModelError for other models, and for a configuration that lacks a size."""
        fields = {**config, **(config.get("text_config") or {})}
        model_type = fields.get("model_type")
        if model_type not in _MODEL_TYPES:
            raise UnsupportedModelError(
                f"the memory of a {model_type!r} model is not known: {', '.join(_MODEL_TYPES)} are"
            )
        try:
            num_heads, hidden_size = fields["num_attention_heads"], fields["hidden_size"]
            return cls(
                architecture=str((fields.get("architectures") or [model_type])[0]),
                num_layers=fields["num_hidden_layers"],
                hidden_size=hidden_size,
                num_heads=num_heads,
                num_kv_heads=fields.get("num_key_value_heads") or num_heads,
                head_dim=fields.get("head_dim") or hidden_size // num_heads,
                intermediate_size=fields["intermediate_size"],
                vocab_size=fields["vocab_size"],
                is_tied=fields.get("tie_word_embeddings", model_type.startswith("gemma")),
            )
        except KeyError as error:
            raise UnsupportedModelError(f"the config.json of this {model_type!r} model lacks {error}") from None

    @property
    def num_parameters(self) -> int:
        linears = self.num_layers * sum(rows * columns for rows, columns in self.linears(1))
        return linears + self.num_other_values(1)

    def linears(self, num_ranks: int) -> list[tuple[int, int]]:
        """(outputs, inputs) of a layer's matrices on one rank: query, key, value, output, gate, up, down."""
        heads, kv_heads = (count // num_ranks * self.head_dim for count in (self.num_heads, self.num_kv_heads))
        neurons, hidden = self.intermediate_size // num_ranks, self.hidden_size
        attention = [(heads, hidden), (kv_heads, hidden), (kv_heads, hidden), (hidden, heads)]
        return [*attention, (neurons, hidden), (neurons, hidden), (hidden, neurons)]

    def num_other_values(self, num_ranks: int) -> int:
        """Of embedding and output projection, whose last part is padded, and of the norms, which each rank has."""
        num_tokens = -(-self.vocab_size // num_ranks)
        return (num_tokens * (1 if self.is_tied else 2) + 2 * self.num_layers + 1) * self.hidden_size


class MemoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a target on so many GPUs."""

    num_ranks: int
    weights: str
    """What the layers' linears are stored in; embedding, output projection and norms stay bfloat16."""
    weight_bytes: int
    kv_bytes_per_token: int
    """In bfloat16."""
    num_kv_blocks: int
    """That fit beside the weights, of BLOCK_SIZE tokens; 0: the weights alone are too large."""
    num_kv_tokens: int
    """In all sequences together: each rank holds its heads of every token."""


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What `pilotfish plan --model` finds."""

    model: str
    architecture: str
    num_parameters: int
    gpu_memory_gb: float
    """10^9 bytes."""
    usable_share: float
    rows: list[MemoryRow]


def plan_memory(model: str, shape: ModelShape, rank_counts: Sequence[int], gpu_memory_gb: float) -> MemoryPlan:
    """A row for each number of ranks and each kind of weights."""
    usable_bytes = int(gpu_memory_gb * 1e9 * USABLE_SHARE)
    return MemoryPlan(
        model=model,
        architecture=shape.architecture,
        num_parameters=shape.num_parameters,
        gpu_memory_gb=gpu_memory_gb,
        usable_share=USABLE_SHARE,
        rows=[_row(shape, count, weights, usable_bytes) for weights in WEIGHTS for count in rank_counts],
    )


def _row(shape: ModelShape, num_ranks: int, weights: str, usable_bytes: int) -> MemoryRow:
    linears = shape.linears(num_ranks)
    if weights == "bfloat16":
        layer_bytes = sum(rows * columns * _BFLOAT16_BYTES for rows, columns in linears)
    else:  # one byte each, and a float32 scale for each output
        layer_bytes = sum(rows * (columns + _SCALE_BYTES) for rows, columns in linears)
    weight_bytes = shape.num_layers * layer_bytes + shape.num_other_values(num_ranks) * _BFLOAT16_BYTES
    kv_bytes = shape.num_layers * 2 * shape.num_kv_heads // num_ranks * shape.head_dim * _BFLOAT16_BYTES
    num_blocks = max(0, usable_bytes - weight_bytes) // (kv_bytes * BLOCK_SIZE)
    return MemoryRow(
        num_ranks=num_ranks,
        weights=weights,
        weight_bytes=weight_bytes,
        kv_bytes_per_token=kv_bytes,
        num_kv_blocks=num_blocks,
        num_kv_tokens=num_blocks * BLOCK_SIZE,
    )
