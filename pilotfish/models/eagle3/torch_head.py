"""EAGLE-3 heads on torch's operations: for any device and dtype, beside a transformers decoder."""

from __future__ import annotations

import torch
from torch import nn

from pilotfish.models.attention.paged import AttentionShape
from pilotfish.models.decoder_transformers import TensorPool
from pilotfish.models.eagle3.module import Eagle3Head, Rotary
from pilotfish.models.eagle3.runtime import FIRST_KEY, HeadOutput, HeadStep
from pilotfish.models.graphs.attention import AttentionBackend
from pilotfish.speculation.sampling.transfer import to_device


class TorchEagle3Head:
    """See FeatureHead."""

    def __init__(self, module: Eagle3Head, target_embeddings: nn.Module, backend: AttentionBackend) -> None:
        """module: in the dtype and on the device of the target's features."""
        config = module.config
        self.draft_token_ids = module.target_token_ids
        self.feature_width = module.fc.in_features
        self.dtype = module.fc.weight.dtype
        self.device = module.fc.weight.device
        self._module = module
        self._embeddings = module.embed_tokens or target_embeddings
        self._backend = backend
        self._shape = AttentionShape(
            num_kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            scale=config.head_dim**-0.5,
            first_key=FIRST_KEY,
        )
        self._pool: TensorPool | None = None

    def allocate(self, num_blocks: int) -> TensorPool:
        weight = self._module.fc.weight
        self._pool = TensorPool([self._shape], num_blocks, weight.dtype, weight.device)
        return self._pool

    @torch.inference_mode()
    def forward(self, step: HeadStep) -> HeadOutput:
        if self._pool is None:
            raise RuntimeError("allocate a KV pool before the first forward")
        module, pool = self._module, self._pool.tensors[0]
        device = pool.device
        batch = self._backend.prepare(step.slices, len(step.token_ids))
        embeddings = self._embeddings(to_device(step.token_ids, torch.int64, device))
        is_fused = step.states.shape[1] == module.config.hidden_size
        hidden = step.states if is_fused else module.fuse(step.states)
        rotary = Rotary(module.config, to_device(step.positions, torch.int64, device))
        query, key, value = module.midlayer.project(embeddings, hidden, rotary)
        batch.write_kv(pool, torch.cat((key, value), dim=1))
        output = module.midlayer.finish(batch.attend(query, pool, self._shape), hidden)
        logit_rows = to_device(step.logit_rows, torch.int64, device)
        return HeadOutput(module.logits(output[logit_rows]).float(), output)
