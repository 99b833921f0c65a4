"""Reads hidden states out of a transformers model while it runs, and lets it leave early.

Legend: T rows of a forward (padding included), R logit rows, F captured layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pilotfish.errors import ConfigError, UnsupportedModelError


class HiddenStates:
    """Hooks on a model's layers and output projection; without layers asked for there are none."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._body: Any = model.get_decoder()
        self._model = model
        self._wanted: tuple[int, ...] | None = None
        self._features: dict[int, Tensor] = {}
        self._last_hidden = torch.empty(0)

    @property
    def num_layers(self) -> int:
        return len(self._layers)

    def capture(self, layers: Sequence[int]) -> None:
        """See Decoder.capture."""
        wanted = layers_to_capture(layers, self._wanted, self.num_layers)
        for index in set(wanted).difference(self._wanted or ()):
            if index == self.num_layers:
                self._body.register_forward_hook(self._keep_output)
            else:
                self._layers[index].register_forward_pre_hook(self._keep_input(index), with_kwargs=True)
        if self._wanted is None:
            head: Any = self._model.get_output_embeddings()
            head.register_forward_pre_hook(self._keep_last)
        self._wanted = wanted

    def features(self, num_rows: int) -> Tensor:
        """[num_rows, F * hidden] of the last forward."""
        parts = [self._features[index][0, :num_rows] for index in self._wanted or ()]
        self._features.clear()
        return torch.cat(parts, dim=-1)

    def last_hidden(self) -> Tensor:
        """[R, hidden] of the last forward."""
        return self._last_hidden[0]

    @property
    def _layers(self) -> Any:
        return getattr(self._body, name_of_layers(self._body))

    def _keep_input(self, index: int) -> Any:
        def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._features[index] = args[0] if args else kwargs["hidden_states"]

        return keep

    def _keep_output(self, _: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        self._features[self.num_layers] = output.last_hidden_state

    def _keep_last(self, _: nn.Module, args: tuple[Any, ...]) -> None:
        self._last_hidden = args[0]


def name_of_layers(body: nn.Module) -> str:
    """What a model's body calls its list of layers. Raises UnsupportedModelError for one without."""
    for name, child in body.named_children():
        if isinstance(child, nn.ModuleList):
            return name
    raise UnsupportedModelError(f"{type(body).__name__} has no list of layers to read hidden states from")


def layers_to_capture(layers: Sequence[int], before: Sequence[int] | None, num_layers: int) -> tuple[int, ...]:
    """What to capture when `layers` are wanted beside those wanted before; None: nothing was.

    Raises ValueError for a layer that is not one of num_layers; ConfigError when others were wanted before.
    """
    for index in layers:
        if not 0 <= index <= num_layers:
            raise ValueError(
                f"layer {index} cannot be captured: the model has layers 0 to {num_layers - 1}, "
                f"and {num_layers} stands for what leaves the last one"
            )
    if before is not None and tuple(layers) != tuple(before):
        raise ConfigError(
            f"features of layers {list(before)} and of layers {list(layers)} are wanted (target.drafter, "
            "target.feature_layers); a target keeps those of the same layers only"
        )
    return tuple(layers)
