"""What a transformers model keeps of a text between two forwards: keys and values, or the state of recurrent layers.

It is a dict of keywords, as `generate` hands them to the model's next forward; empty for a model that keeps nothing.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import (
    DummyLayer,
    DynamicIndexedLayer,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionCacheLayerMixin,
)

State = dict[str, Any]

_GROWING = (DynamicLayer, DynamicIndexedLayer, DummyLayer)
"""Layers of a cache that only ever append: they can be cut back, and copied without their tensors."""


class StatefulModel:
    """A causal LM whose forward goes on from a state, with the inputs that its `generate` would prepare."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model: Any = model
        self._takes_positions = "position_ids" in inspect.signature(self.model.forward).parameters
        self._keeps_logits: bool = self.model._supports_logits_to_keep()

    def new_state(self) -> State:
        """An empty state. Sliding windows keep all of a text, so that they can be cut back."""
        if not self.model._supports_default_dynamic_cache():
            return {}  # the model makes it in its first forward
        cache = DynamicCache(config=self.model.config.get_text_config(decoder=True))
        cache.layers = [DynamicLayer() if type(layer) is DynamicSlidingWindowLayer else layer for layer in cache.layers]
        return {"cache_params" if "mamba" in type(self.model).__name__.lower() else "past_key_values": cache}

    @torch.inference_mode()
    def forward(self, text: Sequence[int], num_known: int, state: State, num_logits: int) -> tuple[Tensor, State]:
        """Logits [num_logits, V] of the last tokens, and the state of the whole text.

        num_known: tokens that the state, which is changed, stands for.
        """
        rows = torch.tensor([list(text)], device=self.model.device)
        inputs = {"attention_mask": torch.ones_like(rows), "use_cache": True, **state}
        if self._takes_positions:
            inputs["position_ids"] = torch.arange(len(text), device=rows.device)[None]
        if self._keeps_logits:
            inputs["logits_to_keep"] = num_logits
        inputs = self.model.prepare_inputs_for_generation(
            rows,
            next_sequence_length=len(text) - num_known if num_known else None,
            is_first_iteration=not num_known,
            **inputs,
        )
        outputs = self.model(**inputs, return_dict=True)
        logits: Tensor = outputs.logits[0, -num_logits:]
        return logits, self.model._update_model_kwargs_for_generation(outputs, {})


def is_cuttable(state: State) -> bool:
    """Whether `cut` can take tokens away from it."""
    caches = list(state.values())
    return bool(caches) and all(
        type(cache) is DynamicCache and all(type(layer) in _GROWING for layer in cache.layers) for cache in caches
    )


def cut(state: State, num_tokens: int) -> None:
    """Take the last num_tokens tokens away."""
    for cache in state.values() if num_tokens else ():
        cache.crop(-num_tokens)


def copied(state: State) -> State:
    """A state of its own, which forwards from the other one do not change."""
    return {name: _copied_cache(cache) for name, cache in state.items()}


def num_bytes(state: State) -> int:
    """Memory of its tensors."""
    return sum(tensor.nbytes for tensor in _tensors(list(state.values())))


def _copied_cache(cache: Any) -> Any:
    if type(cache) is not DynamicCache:
        return copy.deepcopy(cache)
    twin = copy.copy(cache)
    twin.layers = [_copied_layer(layer) for layer in cache.layers]
    return twin


def _copied_layer(layer: Any) -> Any:
    # Growing layers make new tensors when they grow; all others write into those that they have.
    return copy.copy(layer) if type(layer) in _GROWING else copy.deepcopy(layer)


def _tensors(value: Any) -> Iterator[Tensor]:
    match value:
        case Tensor():
            yield value
        case Cache() | LinearAttentionCacheLayerMixin() | DynamicLayer():
            yield from _tensors(list(vars(value).values()))
        case dict():
            yield from _tensors(list(value.values()))
        case list() | tuple():
            for each in value:
                yield from _tensors(each)
