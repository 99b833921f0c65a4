"""A model's matrices, by its config.json, and a rank's part of each. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.store.folder import text_fields

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
        """Sizes that the configuration lacks are transformers' defaults. Raises UnsupportedModelError for other
        models."""
        fields = text_fields(config)
        model_type = fields.get("model_type")
        if model_type not in _MODEL_TYPES:
            raise UnsupportedModelError(
                f"the memory of a {model_type!r} model is not known: {', '.join(_MODEL_TYPES)} are"
            )
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
        """Values of embedding and output projection, whose last part is padded, and of the norms, which each rank
        has."""
        num_tokens = -(-self.vocab_size // num_ranks)
        return (num_tokens * (1 if self.is_tied else 2) + 2 * self.num_layers + 1) * self.hidden_size
