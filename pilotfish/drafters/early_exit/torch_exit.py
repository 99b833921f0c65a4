"""Exits on torch's operations, from a transformers decoder."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from pilotfish.drafters.early_exit.module import ExitHead, run_layer
from pilotfish.models.attention.paged import AttentionBatch
from pilotfish.models.attention.rows import StepRows
from pilotfish.models.attention.sdpa import SdpaBatch
from pilotfish.models.capture import name_of_layers
from pilotfish.models.decoder import StepInput
from pilotfish.models.decoder_transformers import TensorPool, TransformersDecoder
from pilotfish.models.graphs.runner import GraphRunner
from pilotfish.models.packing import pack_linears
from pilotfish.speculation.sampling.transfer import to_device


class TorchExit:
    """See Exit. With the decoder's plan for graphs, forwards are recorded by the first one after `allocate`."""

    def __init__(self, decoder: TransformersDecoder, num_layers: int, head: ExitHead | None) -> None:
        """num_layers: of the decoder. head: in its dtype and on its device; None: bare. Takes over the head."""
        self.is_trained = head is not None
        self._decoder = decoder
        self._num_layers = num_layers
        body: Any = decoder.model.get_decoder()
        self._body: Any = copy.copy(body)
        self._body._modules = dict(body._modules)  # all but its layers and norm are the decoder's
        name = name_of_layers(body)
        layers = list(getattr(body, name)[:num_layers])
        if head is None:
            self.draft_token_ids = torch.arange(decoder.vocab_size, device=decoder.device)
            self._output: nn.Module = decoder.model.get_output_embeddings()
        else:
            if decoder.device.type == "cpu":
                pack_linears(head, deterministic=False)
            self.draft_token_ids = head.token_map
            self._output = head.lm_head
            self._body.norm = head.norm
            layers.append(head.block)
        setattr(self._body, name, nn.ModuleList(layers))
        self._own: list[Tensor] = []
        self._num_key_heads = max(layer.num_kv_heads for layer in decoder.layers)
        self._graphs: GraphRunner | None = None
        if decoder.graph_plan is not None:
            self._graphs = GraphRunner(
                self._run_static, decoder.graph_plan, num_key_heads=self._num_key_heads, device=decoder.device
            )

    def allocate(self, num_blocks: int) -> int:
        if self._graphs is not None:
            self._graphs.forget()
        shapes = [self._decoder.layers[self._num_layers]] if self.is_trained else []
        pool = TensorPool(shapes, num_blocks, self._decoder.dtype, self._decoder.device)
        self._own = pool.tensors
        return pool.num_bytes

    @torch.inference_mode()
    def forward(self, step: StepInput) -> Tensor:
        if self._graphs is not None:
            if not self._graphs.is_recorded:
                self._graphs.record()
            if self._graphs.replay(step):
                return self._graphs.outputs.read("logits", len(step.logit_rows))
        token_ids, positions, attention = self._rows(step)
        return self._run(token_ids, positions, to_device(step.logit_rows, torch.int64, self._decoder.device), attention)

    @torch.inference_mode()
    def take_in(self, step: StepInput, states: Tensor) -> None:
        _, positions, attention = self._rows(step)
        block = self._body.layers[self._num_layers]
        run_layer(block, self._decoder.model, states, positions, paged_batch=attention, paged_pools=self._pools)

    @property
    def _pools(self) -> list[Tensor]:
        """The cache of each layer: those that the decoder has, then the block's own."""
        assert self._decoder.pool is not None
        return [*self._decoder.pool.tensors[: self._num_layers], *self._own]

    def _rows(self, step: StepInput) -> tuple[Tensor, Tensor, AttentionBatch]:
        """Token ids and positions [T] on the device, and the attention over them."""
        device = self._decoder.device
        if self._decoder.row_attention is not None:
            rows = StepRows.holding(step, self._num_key_heads, device)
            return rows.token_ids, rows.positions, self._decoder.row_attention(rows)
        token_ids, positions = (to_device(each, torch.int64, device) for each in (step.token_ids, step.positions))
        return token_ids, positions, SdpaBatch(step.slices, len(step.token_ids), deterministic=False)

    def _run(self, token_ids: Tensor, positions: Tensor, logit_rows: Tensor, attention: AttentionBatch) -> Tensor:
        """Logits [R, Vd]; token_ids and positions [T], logit_rows [R]."""
        hidden = self._body(
            input_ids=token_ids[None],
            position_ids=positions[None],
            use_cache=False,
            paged_batch=attention,
            paged_pools=self._pools,
        ).last_hidden_state[0]
        logits: Tensor = self._output(hidden[logit_rows]).float()
        return logits

    def _run_static(self, rows: StepRows) -> None:
        assert self._decoder.row_attention is not None
        assert self._graphs is not None
        logits = self._run(rows.token_ids, rows.positions, rows.logit_rows, self._decoder.row_attention(rows))
        self._graphs.outputs.write("logits", logits)
