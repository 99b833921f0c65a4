"""EAGLE-3 heads on torch's operations: for any device and dtype, beside a transformers decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from pilotfish.drafters.eagle3.module import Eagle3Head, Rotary
from pilotfish.errors import UnsupportedModelError
from pilotfish.models.attention.paged import AttentionBatch, AttentionShape
from pilotfish.models.attention.rows import RowAttention, StepRows
from pilotfish.models.attention.sdpa import SdpaBatch
from pilotfish.models.decoder_transformers import TensorPool
from pilotfish.models.feature_head import FIRST_KEY, HeadOutput, HeadStep
from pilotfish.models.graphs.runner import GraphPlan, GraphRunner
from pilotfish.speculation.sampling.transfer import to_device

MAX_ROWS = 256
"""Rows of a recorded forward, at most."""


class TorchEagle3Head:
    """See FeatureHead. With a plan, forwards are recorded by the first one after `allocate`."""

    def __init__(
        self,
        module: Eagle3Head,
        embeddings: nn.Module,
        *,
        deterministic: bool,
        row_attention: RowAttention | None = None,
        graphs: GraphPlan | None = None,
    ) -> None:
        """module: in the dtype and on the device of the target's features. embeddings: its own, or the target's. The
        others: as TransformersDecoder's."""
        config = module.config
        self.draft_token_ids = module.target_token_ids
        self.feature_layers: tuple[int, ...] = module.config.feature_layers
        self.feature_width = module.fc.in_features
        self.reads_text = True
        self.max_draft_tokens: int | None = None
        self.dtype = module.fc.weight.dtype
        self.device = module.fc.weight.device
        self.config = config
        self._module = module
        self._embeddings = embeddings
        self._deterministic = deterministic
        self._row_attention = row_attention
        self._shape = AttentionShape(
            num_kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            scale=config.head_dim**-0.5,
            first_key=FIRST_KEY,
        )
        self._pool: TensorPool | None = None
        self._recorded: dict[int, _Recorded] = {}
        if graphs is not None:
            plan = replace(graphs, sizes=tuple(size for size in graphs.sizes if size <= MAX_ROWS))
            self._recorded = {
                width: _Recorded(self._run_rows, plan, self._shape.num_kv_heads, module.fc.weight.new_zeros(0, width))
                for width in (self.feature_width, config.hidden_size)
            }

    def allocate(self, num_blocks: int) -> TensorPool:
        for recorded in self._recorded.values():
            recorded.runner.forget()
        self._pool = TensorPool([self._shape], num_blocks, self.dtype, self.device)
        return self._pool

    def prepare(self, module: Eagle3Head) -> Callable[[], None]:
        """Bring other weights of the same sizes to the device, on any thread; what is returned copies them over the
        head's own, where recorded forwards read them, and their draft vocabulary, between two forwards."""
        if module.embed_tokens is not None and self._module.embed_tokens is None:
            raise UnsupportedModelError("it has embeddings of its own, and the head that drafts has its target's")
        weights = module.to(device=self.device, dtype=self.dtype).state_dict()
        own = self._module.state_dict()

        def exchange() -> None:
            with torch.no_grad():
                for name, weight in weights.items():
                    own[name].copy_(weight)
            self.draft_token_ids = self._module.target_token_ids

        return exchange

    @torch.inference_mode()
    def forward(self, step: HeadStep) -> HeadOutput:
        if self._pool is None:
            raise RuntimeError("allocate a KV pool before the first forward")
        for each in self._recorded.values():
            each.record_once()
        recorded = self._recorded.get(step.states.shape[1])
        output = None if recorded is None else recorded.replay(step)
        if output is not None:
            return output
        if self._row_attention is not None:
            rows = StepRows.holding(step, self._shape.num_kv_heads, self.device)
            return self._run_rows(rows, step.states, len(step.logit_rows))
        return self._run(
            to_device(step.token_ids, torch.int64, self.device),
            to_device(step.positions, torch.int64, self.device),
            step.states,
            to_device(step.logit_rows, torch.int64, self.device),
            SdpaBatch(step.slices, len(step.token_ids), self._deterministic),
        )

    def _run_rows(self, rows: StepRows, states: Tensor, num_logit_rows: int) -> HeadOutput:
        assert self._row_attention is not None
        logit_rows = rows.logit_rows[:num_logit_rows]
        return self._run(rows.token_ids, rows.positions, states, logit_rows, self._row_attention(rows))

    def _run(
        self, token_ids: Tensor, positions: Tensor, states: Tensor, logit_rows: Tensor, attention: AttentionBatch
    ) -> HeadOutput:
        """Run rows: token_ids and positions [T], logit_rows [R]; states: see HeadStep."""
        assert self._pool is not None
        module, pool = self._module, self._pool.tensors[0]
        embeddings = self._embeddings(token_ids)
        is_fused = states.shape[1] == module.config.hidden_size
        hidden = states if is_fused else module.fuse(states)
        query, key, value = module.midlayer.project(embeddings, hidden, Rotary(module.config, positions))
        attention.write_kv(pool, key, value)
        if not len(logit_rows):
            return HeadOutput(hidden.new_zeros(0, len(self.draft_token_ids)).float(), hidden[:0])
        attended = attention.attend(query, pool, self._shape)
        output = module.midlayer.finish(attended[logit_rows], hidden[logit_rows])
        return HeadOutput(module.logits(output).float(), output)


class _Recorded:
    """The recorded forwards over states of one width."""

    def __init__(
        self, run: Callable[[StepRows, Tensor, int], HeadOutput], plan: GraphPlan, num_key_heads: int, like: Tensor
    ) -> None:
        """like: [0, width] in the states' dtype and on their device."""
        self._run_rows = run
        self._states = like.new_zeros(plan.sizes[-1], like.shape[1])
        self.runner = GraphRunner(self._run, plan, num_key_heads=num_key_heads, device=like.device)

    def record_once(self) -> None:
        if not self.runner.is_recorded:
            self.runner.record()

    def replay(self, step: HeadStep) -> HeadOutput | None:
        num_rows = len(step.token_ids)
        if not self.runner.replay(step, before=lambda: self._states[:num_rows].copy_(step.states)):
            return None
        logits = self.runner.outputs.read("logits", len(step.logit_rows))
        return HeadOutput(logits, self.runner.outputs.read("hidden", len(step.logit_rows)))

    def _run(self, rows: StepRows) -> None:
        num_rows = rows.shape.num_rows
        output = self._run_rows(rows, self._states[:num_rows], num_rows)
        self.runner.outputs.write("logits", output.logits)
        self.runner.outputs.write("hidden", output.hidden)
