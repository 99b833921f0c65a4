"""Any causal LM of transformers, run on the paged KV pool through its attention interface.

The metadata of a step travels as keyword arguments of the model's forward, so that nothing is global
but the registered function itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.attention import AttentionBackend, AttentionBatch, AttentionShape
from pilotfish.models.attention_sdpa import SdpaBackend
from pilotfish.models.capture import HiddenStates
from pilotfish.models.decoder import StepInput, bytes_per_block
from pilotfish.models.packing import MIN_ROWS, pack_linears
from pilotfish.types import BLOCK_SIZE

ATTENTION_NAME = "pilotfish_paged"

_STATIC_ROPE_TYPES = {"default", "linear", "llama3", "yarn", "proportional"}
"""Rotary scalings that depend on the position alone; the others change with the sequence's length."""


def _paged_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,  # noqa: ARG001 -- transformers passes it by position
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    *,
    paged_batch: AttentionBatch,
    paged_pools: Sequence[Tensor],
    **_: Any,
) -> tuple[Tensor, None]:
    """transformers' attention signature: query [1, H, T, D], key and value [1, H_kv, T, D] -> [1, T, H, D]."""
    if s_aux is not None:
        raise UnsupportedModelError("attention sinks are not supported")
    num_heads, head_dim = query.shape[1], query.shape[3]
    num_kv_heads = key.shape[1]
    pool = paged_pools[module.layer_idx]
    paged_batch.write_kv(pool, torch.cat((key[0], value[0])).transpose(0, 1))
    shape = AttentionShape(
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        scale=head_dim**-0.5 if scaling is None else scaling,
        sliding_window=sliding_window,
        softcap=softcap,
    )
    output = paged_batch.attend(query[0].transpose(0, 1), pool, shape)
    return output.view(1, -1, num_heads, head_dim), None


def _no_mask(*_: Any, **__: Any) -> None:
    """The paged batch carries its own masks."""


AttentionInterface.register(ATTENTION_NAME, _paged_attention)
AttentionMaskInterface.register(ATTENTION_NAME, _no_mask)


class TensorPool:
    """One tensor a layer, [num_blocks * BLOCK_SIZE, 2 * H_kv, D]."""

    def __init__(
        self, layers: Sequence[AttentionShape], num_blocks: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.num_blocks = num_blocks
        self._num_bytes = num_blocks * bytes_per_block(layers, BLOCK_SIZE, dtype)
        self.tensors = [
            torch.zeros(num_blocks * BLOCK_SIZE, 2 * layer.num_kv_heads, layer.head_dim, dtype=dtype, device=device)
            for layer in layers
        ]

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy slots (from, to) of every tensor; all are read before any is written."""
        source, target = torch.tensor(moves, device=self.tensors[0].device).unbind(1)
        for tensor in self.tensors:
            tensor.index_copy_(0, target, tensor.index_select(0, source))


class TransformersDecoder:
    """See Decoder. Takes over the model: its attention and, for bfloat16 on CPU, its linears are replaced."""

    name = "transformers"

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        deterministic: bool,
        max_context_tokens: int,
        backend: AttentionBackend | None = None,
    ) -> None:
        check_supported(model)
        config = model.config.get_text_config()
        self.vocab_size: int = config.vocab_size
        self.max_context_tokens = max_context_tokens
        self.dtype: torch.dtype = model.dtype
        self.device: torch.device = model.device
        self._layers = attention_shapes(model)
        self._model = model
        self.backend = backend or SdpaBackend(deterministic)
        self._pool: TensorPool | None = None
        model.set_attn_implementation(ATTENTION_NAME)
        if self.device.type == "cpu":
            pack_linears(model, deterministic)
        self._hidden_states = HiddenStates(model)
        self._captures = False

    @property
    def input_embeddings(self) -> nn.Module:
        """Token ids to what enters the first layer."""
        embeddings: nn.Module = self._model.get_input_embeddings()
        return embeddings

    def capture(self, layers: Sequence[int]) -> None:
        self._hidden_states.capture(layers)
        self._captures = True

    def allocate(self, num_blocks: int) -> TensorPool:
        self._pool = TensorPool(self._layers, num_blocks, self.dtype, self.device)
        return self._pool

    @torch.inference_mode()
    def move_kv(self, moves: Sequence[tuple[int, int]]) -> None:
        if self._pool is not None and moves:
            self._pool.move(moves)

    @torch.inference_mode()
    def forward(self, step: StepInput) -> Tensor:
        if self._pool is None:
            raise RuntimeError("allocate a KV pool before the first forward")
        # Padding to MIN_ROWS keeps single rows on the same kernels as several (see packing).
        padding = max(0, MIN_ROWS - len(step.token_ids))
        batch = self.backend.prepare(step.slices, len(step.token_ids) + padding)
        with self._hidden_states.exiting_after(step.exit_layer):
            output = self._model(
                input_ids=torch.tensor([[*step.token_ids, *[0] * padding]], device=self.device),
                position_ids=torch.tensor([[*step.positions, *[0] * padding]], device=self.device),
                use_cache=False,
                logits_to_keep=torch.tensor(step.logit_rows, dtype=torch.int64, device=self.device),
                paged_batch=batch,
                paged_pools=self._pool.tensors,
            )
        if self._captures:
            self.last_hidden = self._hidden_states.last_hidden()
            self.features = self._hidden_states.features(len(step.token_ids))
        logits: Tensor = output.logits[0]
        return logits


def attention_shapes(model: PreTrainedModel) -> list[AttentionShape]:
    """Key/value geometry of every layer, read from the attention modules themselves."""
    shapes: dict[int, AttentionShape] = {}
    for candidate in model.modules():
        module: Any = candidate
        if not (hasattr(module, "layer_idx") and isinstance(getattr(module, "k_proj", None), nn.Linear)):
            continue
        head_dim = module.head_dim
        shapes[module.layer_idx] = AttentionShape(
            num_kv_heads=module.k_proj.out_features // head_dim,
            head_dim=head_dim,
            scale=getattr(module, "scaling", head_dim**-0.5),
            sliding_window=getattr(module, "sliding_window", None),
        )
    num_layers = model.config.get_text_config().num_hidden_layers
    if sorted(shapes) != list(range(num_layers)):
        raise UnsupportedModelError(
            f"{type(model).__name__}: {len(shapes)} of {num_layers} layers have standard attention with k_proj; "
            "only models whose layers all have it are supported"
        )
    return [shapes[index] for index in range(num_layers)]


def check_supported(model: PreTrainedModel) -> None:
    """Raise UnsupportedModelError for models whose logits would depend on more than their tokens."""
    config = model.config.get_text_config()
    parameters = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in parameters.values() if isinstance(value, dict)] or [parameters]
    for rope in nested:
        rope_type = rope.get("rope_type", "default")
        if rope_type not in _STATIC_ROPE_TYPES:
            raise UnsupportedModelError(
                f"rotary scaling {rope_type!r} changes with the sequence's length, which cached keys cannot follow"
            )
