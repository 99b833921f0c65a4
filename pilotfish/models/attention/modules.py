"""The attention modules of a transformers model: what shape they have, and how a step's keywords reach them.

Keys come from a linear of their own (`k_proj`), or with queries and values from one that is merged. Architectures name
what they have in different ways; whether a reading is right shows in `models/self_check/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.attention.paged import AttentionShape
from pilotfish.models.scaled_linear import ScaledLinear

_HEAD_SIZES = ("head_dim", "head_size", "attention_head_size")
_KEY_HEADS = ("num_key_value_heads", "kv_heads", "num_heads", "num_attention_heads")
"""The first that a module has, or its config: without key heads of their own, all query heads have keys."""


def has_own_keys(module: Any) -> bool:
    """Whether keys come from a linear of their own."""
    return isinstance(getattr(module, "k_proj", None), nn.Linear | ScaledLinear)


def attention_modules(model: PreTrainedModel) -> Iterator[tuple[Any, Any]]:
    """Attention modules that have a place in the KV cache, each with the module that calls it."""
    for caller in model.modules():
        for each in caller.children():
            module: Any = each
            is_attention = has_own_keys(module) or hasattr(module, "is_causal")
            if is_attention and isinstance(getattr(module, "layer_idx", None), int) and _head_dim(module):
                yield module, caller


def attention_shapes(model: PreTrainedModel) -> list[AttentionShape]:
    """Key/value geometry of every layer. Raises UnsupportedModelError where a layer has no such attention."""
    shapes = {module.layer_idx: _shape(module, model.config) for module, _ in attention_modules(model)}
    num_layers = model.config.get_text_config().num_hidden_layers
    if sorted(shapes) != list(range(num_layers)):
        raise unsupported(
            model.config,
            f"{num_layers - len(shapes)} of its {num_layers} layers lack attention that takes another implementation "
            "and keeps keys and values in the usual form",
        )
    return [shapes[index] for index in range(num_layers)]


def pass_keywords_on(model: PreTrainedModel, names: tuple[str, ...]) -> None:
    """Keep keywords of a layer's forward with its attention module while it runs, as `paged_step`: some layers do not
    pass them on. Mutates the model."""
    for module, caller in attention_modules(model):
        module.paged_step = None
        caller.register_forward_pre_hook(_keeper(module, names), with_kwargs=True)
        caller.register_forward_hook(_forgetter(module), always_call=True)


def _keeper(module: Any, names: tuple[str, ...]) -> Callable[..., None]:
    def keep(_: nn.Module, __: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        module.paged_step = tuple(keywords.get(name) for name in names)

    return keep


def _forgetter(module: Any) -> Callable[..., None]:
    def forget(*_: Any) -> None:
        module.paged_step = None  # else a pool that is gone would keep its memory

    return forget


def unsupported(config: PreTrainedConfig, reason: str) -> UnsupportedModelError:
    """The error for a model that cannot be served, or not right."""
    return UnsupportedModelError(
        f"the architecture {config.model_type!r} cannot be served: {reason}; take a model of another one "
        "(docs/models.md)",
        reason=reason,
    )


def _shape(module: Any, config: PreTrainedConfig) -> AttentionShape:
    head_dim = _head_dim(module)
    if has_own_keys(module):
        num_kv_heads = module.k_proj.out_features // head_dim  # a rank has a share of them
    else:
        num_kv_heads = _first(module, _KEY_HEADS) or config.get_text_config().num_attention_heads
    own = getattr(module, "config", None)
    return AttentionShape(
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        scale=getattr(module, "scaling", head_dim**-0.5),
        sliding_window=getattr(module, "sliding_window", getattr(own, "sliding_window", None)),
        sinks=getattr(module, "sinks", None),
    )


def _head_dim(module: Any) -> int:
    return _first(module, _HEAD_SIZES)


def _first(module: Any, names: tuple[str, ...]) -> int:
    """The first of the names that is a number; 0: none is."""
    return next((value for name in names if isinstance(value := getattr(module, name, None), int)), 0)
