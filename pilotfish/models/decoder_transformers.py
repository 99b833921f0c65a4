"""A causal LM of transformers, run on the paged KV pool through its attention interface: see `self_check` for which.

The metadata of a step travels as keyword arguments of the model's forward, so that nothing is global
but the registered function itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedConfig, PreTrainedModel

from pilotfish.models.attention.modules import attention_shapes, pass_keywords_on, unsupported
from pilotfish.models.attention.paged import AttentionBatch, AttentionShape
from pilotfish.models.attention.rows import RowAttention, StepRows
from pilotfish.models.attention.sdpa import SdpaBatch
from pilotfish.models.capture import HiddenStates
from pilotfish.models.decoder import StepInput
from pilotfish.models.graphs.runner import GraphPlan, GraphRunner, StaticOutputs
from pilotfish.models.packing import MIN_ROWS, pack_linears
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.types import BLOCK_SIZE

ATTENTION_NAME = "pilotfish_paged"

_STATIC_ROPE_TYPES = {"default", "linear", "llama3", "yarn", "proportional", "longrope"}
"""Rotary scalings that depend on the position alone (longrope's within the context that is served, see
store/folder.py); the others change with the sequence's length."""


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
    paged_batch: AttentionBatch | None = None,
    paged_pools: Sequence[Tensor] = (),
    **_: Any,
) -> tuple[Tensor, None]:
    """The attention in transformers' signature: query [1, H, T, D], key and value [1, H_kv, T, D] -> [1, T, H, D]."""
    if paged_batch is None:
        paged_batch, paged_pools = module.paged_step
        assert paged_batch is not None
    num_heads, head_dim = query.shape[1], query.shape[3]
    num_kv_heads = key.shape[1]
    pool = paged_pools[module.layer_idx]
    paged_batch.write_kv(pool, key[0].transpose(0, 1), value[0].transpose(0, 1))
    shape = AttentionShape(
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        scale=head_dim**-0.5 if scaling is None else scaling,
        sliding_window=sliding_window,
        softcap=softcap,
        sinks=s_aux,
    )
    output = paged_batch.attend(query[0].transpose(0, 1), pool, shape)
    return output.view(1, -1, num_heads, head_dim), None


# No mask is registered under this name: the paged batch carries its own, and transformers then prepares none, for
# which it would wait for the device.
AttentionInterface.register(ATTENTION_NAME, _paged_attention)


class TensorPool:
    """One tensor a layer, [num_blocks * BLOCK_SIZE, 2 * H_kv, D]."""

    def __init__(
        self, layers: Sequence[AttentionShape], num_blocks: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.num_blocks = num_blocks
        self.tensors = [
            torch.zeros(num_blocks * BLOCK_SIZE, 2 * layer.num_kv_heads, layer.head_dim, dtype=dtype, device=device)
            for layer in layers
        ]
        self.num_bytes = sum(tensor.nbytes for tensor in self.tensors)

    def move(self, moves: Sequence[tuple[int, int]]) -> None:
        """Copy slots (from, to) of every tensor; all are read before any is written."""
        source, target = to_device(moves, torch.int64, self.tensors[0].device).unbind(1)
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
        row_attention: RowAttention | None = None,
        graphs: GraphPlan | None = None,
    ) -> None:
        """row_attention: attention over rows that lie on the device, which graphs can be recorded of; None: SDPA."""
        config = model.config.get_text_config()
        self.vocab_size: int = config.vocab_size
        self.max_context_tokens = max_context_tokens
        self.dtype: torch.dtype = model.dtype
        self.device: torch.device = model.device
        self.layers = attention_shapes(model)
        self.model = model
        self._deterministic = deterministic
        self.row_attention = row_attention
        self.graph_plan = graphs
        self.pool: TensorPool | None = None
        model.set_attn_implementation(ATTENTION_NAME)
        if config._attn_implementation != ATTENTION_NAME:
            raise unsupported(model.config, "it takes no attention implementation but transformers' own")
        pass_keywords_on(model, ("paged_batch", "paged_pools"))
        if self.device.type == "cpu":
            pack_linears(model, deterministic)
        self._hidden_states = HiddenStates(model)
        self._captures = False
        self._graphs: GraphRunner | None = None
        self._num_key_heads = max(layer.num_kv_heads for layer in self.layers)
        if graphs is not None:
            self._graphs = GraphRunner(self._run_static, graphs, num_key_heads=self._num_key_heads, device=self.device)

    @property
    def input_embeddings(self) -> nn.Module:
        """Token ids to what enters the first layer."""
        embeddings: nn.Module = self.model.get_input_embeddings()
        return embeddings

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def num_graphs(self) -> int:
        """Shapes that record_graphs records, for the whole model."""
        return 0 if self._graphs is None else self._graphs.num_shapes

    def use_sdpa(self) -> None:
        """Attention is torch's from now on, and nothing is recorded."""
        self.row_attention = self.graph_plan = self._graphs = None

    def capture(self, layers: Sequence[int]) -> None:
        self._hidden_states.capture(layers)
        self._captures = True
        self._forget_graphs()

    def allocate(self, num_blocks: int) -> TensorPool:
        self._forget_graphs()
        self.pool = None  # its memory is free before the next pool's is taken
        self.pool = TensorPool(self.layers, num_blocks, self.dtype, self.device)
        return self.pool

    @torch.inference_mode()
    def record_graphs(self) -> None:
        """Record the plan's sizes for the pool and the captured layers of now; both drop what is recorded. Without a
        plan there is nothing to do."""
        if self._graphs is not None:
            self._graphs.record()

    @torch.inference_mode()
    def move_kv(self, moves: Sequence[tuple[int, int]]) -> None:
        if self.pool is not None and moves:
            self.pool.move(moves)

    @torch.inference_mode()
    def forward(self, step: StepInput) -> Tensor:
        if self.pool is None:
            raise RuntimeError("allocate a KV pool before the first forward")
        if self.row_attention is not None:
            if self._graphs is not None and self._graphs.replay(step):
                return self._static_results(step, self._graphs.outputs)
            rows = StepRows.holding(step, self._num_key_heads, self.device)
            wanted = rows.logit_rows[: len(step.logit_rows)]
            logits = self._run_model(rows.token_ids, rows.positions, wanted, self.row_attention(rows))
        else:
            # Padding to MIN_ROWS keeps single rows on the same kernels as several (see packing).
            padding = max(0, MIN_ROWS - len(step.token_ids)) if self.device.type == "cpu" else 0
            logits = self._run_model(
                to_device([*step.token_ids, *[0] * padding], torch.int64, self.device),
                to_device([*step.positions, *[0] * padding], torch.int64, self.device),
                to_device(step.logit_rows, torch.int64, self.device),
                SdpaBatch(step.slices, len(step.token_ids) + padding, self._deterministic),
            )
        if self._captures:
            self.last_hidden = self._hidden_states.last_hidden()
            self.features = self._hidden_states.features(len(step.token_ids))
        return logits

    def _run_model(self, token_ids: Tensor, positions: Tensor, logit_rows: Tensor, attention: AttentionBatch) -> Tensor:
        """token_ids and positions [T], logit_rows [R]; returns logits [R, V]."""
        assert self.pool is not None
        logits: Tensor = self.model(
            input_ids=token_ids[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=logit_rows,
            paged_batch=attention,
            paged_pools=self.pool.tensors,
        ).logits
        return logits[0]

    def _run_static(self, rows: StepRows) -> None:
        """What is recorded of a step: from the rows' buffer to the output buffers."""
        assert self.row_attention is not None
        assert self._graphs is not None
        outputs = self._graphs.outputs
        logits = self._run_model(rows.token_ids, rows.positions, rows.logit_rows, self.row_attention(rows))
        outputs.write("logits", logits)
        if self._captures:
            outputs.write("last_hidden", self._hidden_states.last_hidden())
            outputs.write("features", self._hidden_states.features(rows.shape.num_rows))

    def _static_results(self, step: StepInput, outputs: StaticOutputs) -> Tensor:
        """The step's logits [R, V], features and last_hidden from the output buffers."""
        if self._captures:
            self.last_hidden = outputs.read("last_hidden", len(step.logit_rows))
            self.features = outputs.read("features", len(step.token_ids))
        return outputs.read("logits", len(step.logit_rows))

    def _forget_graphs(self) -> None:
        if self._graphs is not None:
            self._graphs.forget()


def check_rotary_scaling(config: PreTrainedConfig) -> None:
    """Raise UnsupportedModelError for rotary embeddings that depend on more than a token's position."""
    parameters = getattr(config.get_text_config(), "rope_parameters", None) or {}
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    for rope in nested or [parameters]:
        rope_type = rope.get("rope_type", "default")
        if rope_type not in _STATIC_ROPE_TYPES or (nested and rope_type == "longrope"):
            raise unsupported(
                config,
                f"its rotary scaling {rope_type!r} changes with the text's length, which cached keys cannot follow",
            )
