"""A model's narrow twin: its class and its config.json, but small sizes and random weights.

What decides how a forward is computed stays: every layer and its type, biases, norms, scales, rotary embeddings,
whether heads share keys. Windows, chunks and other lengths at which a model changes its ways become LENGTH at most, so
that a short text passes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from pilotfish.models.architecture import auto_class

LENGTH = 16
"""Tokens of a sliding window, an attention chunk and the like, at most."""
CONTEXT = 256
"""Tokens that a text may have."""
NUM_TOKENS = 96
"""Size of the vocabulary that texts are drawn from; later tokens mean more to a model than themselves."""

_MAX_PARAMETERS = 10**8
_NUM_MARKS = 32
_HEADS, _HEAD_DIM, _INTERMEDIATE, _EXPERTS = 4, 16, 96, 16
_HIDDEN = _HEADS * _HEAD_DIM
_NAMES_OF_HEADS = "num_attention_heads n_head n_heads num_heads attention_heads decoder_attention_heads"
_ROTARY_PARTS = 8
"""Parts of a narrow head, an even number of dimensions each."""


def twin_of(
    config: PreTrainedConfig,
    seed: int,
    kind: type[PreTrainedModel] | None = None,
    *,
    attention: str | None = "eager",
) -> PreTrainedModel:
    """The twin of a model with this config, in float32 on the CPU, in eval mode.

    kind: its class; None: the one that transformers takes for a text with this config. attention: an
    implementation of transformers; None: its default.
    Raises whatever transformers does for a config that makes no model, and ValueError where the twin would be large.
    """
    auto = auto_class(config.model_type) or AutoModelForCausalLM
    build = auto.from_config if kind is None else kind._from_config
    if auto is not AutoModelForCausalLM:  # what looks at images has sizes of its own
        with torch.device("meta"):
            num_parameters = build(twin_config(config)).num_parameters()
        if num_parameters > _MAX_PARAMETERS:
            raise ValueError(f"it would have {num_parameters / 1e6:.0f} million parameters")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = build(twin_config(config), dtype=torch.float32, attn_implementation=attention)
        spread_weights(model)
    return model.eval().requires_grad_(False)


@torch.no_grad()
def spread_weights(model: PreTrainedModel) -> None:
    """Random weights of such a size that attention, norms and biases all matter. Draws from torch's own generator.

    What enters the first layer is larger the more layers there are, as each adds to it: else deep recurrent models make
    a last bit's difference as large as a fault's.
    """
    num_layers = getattr(model.config.get_text_config(), "num_hidden_layers", 1)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(std=parameter.shape[-1] ** -0.5)
        else:
            parameter.add_(torch.randn_like(parameter) * 0.2)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.weight.normal_(std=num_layers**0.5)


def twin_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """The config with a twin's sizes."""
    fields = {name: value for name, value in config.to_dict().items() if name != "quantization_config"}
    twin: PreTrainedConfig = type(config).from_dict(_Sizes.of(fields).narrowed(fields))
    return twin


@dataclass(frozen=True)
class _Sizes:
    """Sizes of a config itself. What is equal to them, or less, stays so."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, fields: Mapping[str, Any], outer: _Sizes | None = None) -> _Sizes:
        """outer: sizes of the config that this one is a part of."""

        def first(names: str, otherwise: int) -> int:
            return next((value for name in names.split() if isinstance(value := fields.get(name), int)), otherwise)

        hidden = first("hidden_size d_model n_embd emb_dim", outer.hidden if outer else 0)
        heads = first(_NAMES_OF_HEADS, outer.heads if outer else 1)
        kv_heads = first("num_key_value_heads num_kv_heads kv_n_heads", heads)
        return cls(hidden, max(1, heads), kv_heads, max(1, first("head_dim", hidden // max(1, heads))))

    def narrowed(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of a config with a twin's sizes in place of these."""
        return {name: self._narrow(name, value) for name, value in fields.items()}

    @property
    def twin_head_dim(self) -> int:
        """Twice as wide where the model's heads are not as wide together as its hidden states."""
        return _HEAD_DIM if self.heads * self.head_dim == self.hidden else 2 * _HEAD_DIM

    def _narrow(self, name: str, value: Any) -> Any:
        match value:
            case bool() | None | str():
                return value
            case int() if value > 0:
                return self._size(name, value)
            case float() if name.endswith("partial_rotary_factor"):
                return max(1, round(value * _ROTARY_PARTS)) / _ROTARY_PARTS
            case list() | tuple() if name.endswith("mrope_section"):
                return self._rotary_sections(value)
            case list() | tuple():
                return [self._narrow(name, each) for each in value]
            case dict() if name.endswith("_config"):
                return _Sizes.of(value, self).narrowed(value)
            case dict():
                fields = {key: self._narrow(f"{name}.{key}", each) for key, each in value.items()}
                return self._short_longrope(fields) if "short_factor" in fields else fields
        return value

    def _rotary_sections(self, sections: Sequence[int]) -> list[int]:
        """The pairs of a head's dimensions that turn by time, by height and by width."""
        narrow = [pairs * self.twin_head_dim // self.head_dim for pairs in sections]
        narrow[0] += sum(sections) * self.twin_head_dim // self.head_dim - sum(narrow)
        return narrow

    def _short_longrope(self, rope: dict[str, Any]) -> dict[str, Any]:
        """A longrope of fewer pairs of dimensions. Texts stay below the length at which it changes, as those that are
        served do (store/folder.py)."""
        num_pairs = int(self.twin_head_dim * rope.get("partial_rotary_factor", 1.0)) // 2
        factors = {name: rope[name][:num_pairs] for name in ("short_factor", "long_factor") if rope.get(name)}
        return {**rope, **factors, "original_max_position_embeddings": CONTEXT}

    def _head_dim_like(self, value: int) -> int:
        if value == self.head_dim:
            return self.twin_head_dim
        return self.twin_head_dim // 2 if value < self.head_dim else 2 * self.twin_head_dim

    def _size(self, name: str, value: int) -> int:
        """A twin's, by what the field's name says: the first of the rules that fits."""
        rules: tuple[tuple[str, int], ...] = (
            (r"vocab", NUM_TOKENS + _NUM_MARKS),
            (r"image|patch|video|audio|vision", value),
            (r"interval|period|offset|every|pattern|dense_replace|seed|theta|factor|beta", value),
            (
                r"(kv|key_value)_(n_)?heads?$|query_groups",
                _HEADS if self.kv_heads == self.heads else min(2, self.kv_heads),
            ),
            (r"^n_mamba_heads$", _HEADS),
            (r"n_groups$", min(value, 2)),
            (r"heads?(_per_layer)?$", max(1, _HEADS * value // self.heads)),
            (r"layer", value),
            (r"_(id|ids|index)$", NUM_TOKENS + value % _NUM_MARKS),
            (r"^original_max", CONTEXT),
            (r"original_max", LENGTH),
            (r"^(max|n|seq|model|context|decoder)_.*(position|seq|ctx|length)|^n_ctx$", CONTEXT),
            (r"^rotary_dim$", value * self.twin_head_dim // self.head_dim),
            (r"^qk_head_dim$", 2 * self.twin_head_dim),  # its two parts, with and without rotary embeddings
            (r"^qk_\w+_head_dim$", self.twin_head_dim),
            (r"head_?(dim|size)$|^d_kv$|^d_head$|^kv_channels$|^dim_head$", self._head_dim_like(value)),
            (r"per_tok|moe_k$|topk(_blocks)?$|top_k$|^n_group$|expert_group", min(value, 2)),
            (r"^topk_group$", min(value, 1)),
            (r"block", min(value, 4)),
            (r"experts?(_num)?$", min(value, _EXPERTS)),
            (r"window|chunk|local|extent|floor|stride", min(value, LENGTH)),
            (r"intermediate|ffn|^d_?ff$|inner|feed_forward|dim_ff", _INTERMEDIATE),
            (r"size|dim|width|embd|^d_", _HIDDEN if value == self.hidden else min(value, LENGTH)),
        )
        return next((size for pattern, size in rules if re.search(pattern, name)), min(value, LENGTH))
