"""A parallel head (P-EAGLE, 2602.01469): an EAGLE-3 head that predicts K tokens in one pass.

The first token is predicted as EAGLE-3 predicts it. The K - 1 behind it have slots whose token and feature are unknown:
the embedding of a token that texts never contain, and a learned feature. All slots look at the text and at the slots
before them. Layers behind EAGLE-3's own are the target's kind.

Tensors are named as vLLM reads them: `mask_hidden` and `layers.1` to `layers.(L-1)` beside those of an EAGLE-3 head.

Shapes: B rows, T tokens of a row, M anchors, S slots of each (K - 1), H hidden size, N query heads, D head size.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

from packed_training.slot_attention import attend_slots, attend_text
from packed_training.target import PackedTarget
from packed_training.tokens import Rows
from pilotfish.drafters.eagle3.checkpoint import load_eagle3
from pilotfish.drafters.eagle3.config import Eagle3Config, eagle3_config_json
from pilotfish.drafters.eagle3.module import Eagle3Head, Rotary

MAX_SHARD_SIZE = "16MB"


class DeepLayer(nn.Module):
    """A layer behind the first, in the two halves of eagle3.module.Midlayer."""

    def __init__(self, config: Eagle3Config, layer: Any) -> None:
        """layer: of the target, whose weights it begins with; at first it adds nothing to what enters it."""
        super().__init__()
        self._head_dim = config.head_dim
        self.self_attn = nn.Module()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self.self_attn, name, copy.deepcopy(getattr(layer.self_attn, name)))
        sizes = {"hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size}
        self.mlp = LlamaMLP(LlamaConfig(**sizes, num_attention_heads=1))
        self.mlp.load_state_dict(layer.mlp.state_dict())
        self.input_layernorm: LlamaRMSNorm = copy.deepcopy(layer.input_layernorm)
        self.post_attention_layernorm: LlamaRMSNorm = copy.deepcopy(layer.post_attention_layernorm)
        nn.init.zeros_(self.self_attn.o_proj.weight)
        nn.init.zeros_(self.mlp.down_proj.weight)

    def project(self, embeddings: Tensor, hidden: Tensor, rotary: Rotary) -> tuple[Tensor, Tensor, Tensor]:
        """As Midlayer.project; embeddings do not enter here."""
        del embeddings
        attention: Any = self.self_attn
        x = self.input_layernorm(hidden)
        query, key, value = (
            project(x).unflatten(-1, (-1, self._head_dim))
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        return rotary.rotate(query), rotary.rotate(key), value

    def finish(self, attended: Tensor, hidden: Tensor) -> Tensor:
        attention: Any = self.self_attn
        x = hidden + attention.o_proj(attended)
        output: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return output


class ParallelHead(Eagle3Head):
    """All weights of a parallel head."""

    def __init__(self, config: Eagle3Config, mask_token_id: int, deep_layers: Sequence[Any]) -> None:
        """deep_layers: of the target, one for each layer behind the first."""
        super().__init__(config)
        self.mask_token_id = mask_token_id
        self.mask_hidden = nn.Parameter(torch.zeros(1, 3 * config.hidden_size))
        self.layers = nn.ModuleDict(
            {str(number): DeepLayer(config, layer) for number, layer in enumerate(deep_layers, 1)}
        )

    def draft(self, embeddings: Tensor, mask_embedding: Tensor, features: Tensor, places: Places) -> Tensor:
        """The output hidden states of drafts of S + 1 tokens, [B, M, S + 1, H].

        embeddings [B, T, H] of the tokens; mask_embedding [H]; features [B, T, 3H] of the positions before them.
        """
        shape = places.slot_positions.shape  # [B, M, S]
        text, slots = self.fuse(features), self.fuse(self.mask_hidden).expand(*shape, -1)
        slot_embeddings = mask_embedding.expand(*shape, -1)
        text_rotary = Rotary(self.config, places.positions.flatten())
        slot_rotary = Rotary(self.config, places.slot_positions.flatten())
        for layer in (self.midlayer, *self.layers.values()):
            text_parts = _project(layer, embeddings, text, text_rotary)
            slot_parts = _project(layer, slot_embeddings, slots, slot_rotary)
            attended = attend_slots(*slot_parts, *text_parts[1:], places.sees_from_anchors)
            slots = layer.finish(attended, slots)
            text = layer.finish(attend_text(*text_parts, places.sees), text)
        return torch.cat((places.at_anchors(text).unsqueeze(2), slots), dim=2)


class Places:
    """Where a step's text and drafts are."""

    def __init__(self, positions: Tensor, sees: Tensor, anchors: Tensor, num_slots: int) -> None:
        """positions int64 [B, T], sees bool [B, T, T], anchors int64 [B, M]."""
        self.positions, self.sees, self.anchors = positions, sees, anchors
        ahead = torch.arange(1, num_slots + 1, device=anchors.device)
        self.slot_positions = positions.gather(1, anchors).unsqueeze(2) + ahead  # [B, M, S]
        self.sees_from_anchors = self.at_anchors(sees)  # [B, M, T]

    def at_anchors(self, values: Tensor, ahead: int = 0) -> Tensor:
        """[B, M, ...] of values [B, T, ...], so far ahead of the anchors; beyond the row: its last position."""
        at = (self.anchors + ahead).clamp(max=values.shape[1] - 1)
        if values.dim() == 2:
            return values.gather(1, at)
        return values.gather(1, at.unsqueeze(2).expand(-1, -1, values.shape[2]))


def _project(layer: Any, embeddings: Tensor, hidden: Tensor, rotary: Rotary) -> list[Tensor]:
    """Query, key and value [..., heads, D] of hidden states [..., H]."""
    width, shape = hidden.shape[-1], hidden.shape[:-1]
    parts = layer.project(embeddings.reshape(-1, width), hidden.reshape(-1, width), rotary)
    return [part.view(*shape, *part.shape[1:]) for part in parts]


def new_parallel_head(
    folder: Path, target: PackedTarget, num_layers: int, mask_token_id: int, rows: Rows
) -> ParallelHead:
    """A head of num_layers that at first predicts one token as the EAGLE-3 head in a folder does, and takes the median
    of the rows' features for those that are unknown."""
    body: Any = target.loaded.model.get_decoder()
    chain = load_eagle3(folder, num_target_layers=len(body.layers), dtype=torch.float32)
    deep_layers = body.layers[len(body.layers) - num_layers + 1 :] if num_layers > 1 else []
    head = ParallelHead(chain.config, mask_token_id, deep_layers)
    head.load_state_dict(chain.state_dict(), strict=False)
    inputs = target.states(rows).inputs
    features = torch.cat([inputs[layer][rows.documents >= 0] for layer in chain.config.feature_layers], dim=-1)
    with torch.no_grad():
        head.mask_hidden.copy_(features.float().median(0).values)
    return head.float().requires_grad_()


def save_parallel_head(head: ParallelHead, folder: Path) -> None:
    """Write config.json and weights in bfloat16, in files of at most MAX_SHARD_SIZE."""
    state = {
        name: tensor.detach().to("cpu", torch.bfloat16 if tensor.is_floating_point() else tensor.dtype).contiguous()
        for name, tensor in head.state_dict().items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_torch_state_dict(state, folder, max_shard_size=MAX_SHARD_SIZE)
    config = eagle3_config_json(head.config) | {
        "num_hidden_layers": 1 + len(head.layers),
        "ptd_token_id": head.mask_token_id,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
