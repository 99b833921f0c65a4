"""The mathematics of an EAGLE-3 head (2503.01840, section 3) as torch modules.

The token at position q is paired with the target's feature of position q - 1. The head writes the key and value
of slot q and predicts the token at q + 1. Its output hidden state stands in for the feature of position q
when it drafts on.

The module leaves attention to its caller: training sees several depths at once, a runtime has a paged cache.

Shapes: T tokens, H hidden size, N query heads, M key/value heads, D head size, V vocabulary, Vd draft vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, rotate_half

from pilotfish.drafters.eagle3.config import Eagle3Config


class Attention(nn.Module):
    """Projections of attention over [embedding, feature], 2H wide."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        width, size = 2 * config.hidden_size, config.head_dim
        self.q_proj = nn.Linear(width, config.num_attention_heads * size, bias=False)
        self.k_proj = nn.Linear(width, config.num_key_value_heads * size, bias=False)
        self.v_proj = nn.Linear(width, config.num_key_value_heads * size, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * size, config.hidden_size, bias=False)


class Midlayer(nn.Module):
    """The decoder layer, in two halves around the caller's attention."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self._config = config
        self.self_attn = Attention(config)
        sizes = {"hidden_size": config.hidden_size, "intermediate_size": config.intermediate_size}
        self.mlp = LlamaMLP(LlamaConfig(**sizes, num_attention_heads=1))  # of any head size
        self.hidden_norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.input_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)

    def project(self, embeddings: Tensor, hidden: Tensor, rotary: Rotary) -> tuple[Tensor, Tensor, Tensor]:
        """Query [T, N, D], key and value [T, M, D] of embeddings and hidden [T, H]; rotary holds the T positions."""
        x = torch.cat((self.input_layernorm(embeddings), self.hidden_norm(hidden)), dim=-1)
        size = self._config.head_dim
        query = self.self_attn.q_proj(x).unflatten(-1, (-1, size))
        key = self.self_attn.k_proj(x).unflatten(-1, (-1, size))
        value = self.self_attn.v_proj(x).unflatten(-1, (-1, size))
        return rotary.rotate(query), rotary.rotate(key), value

    def finish(self, attended: Tensor, hidden: Tensor) -> Tensor:
        """The output hidden state [T, H]: attended [T, N * D]; hidden [T, H] is the residual, not normed."""
        x = hidden + self.self_attn.o_proj(attended)
        output: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return output


class Rotary:
    """Rotary embedding of some positions, halves rotated (Llama's way)."""

    def __init__(self, config: Eagle3Config, positions: Tensor) -> None:
        """positions: int64 [T]."""
        half = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device=positions.device) / config.head_dim
        angles = positions.float().unsqueeze(-1) * config.rope_theta**-half
        angles = torch.cat((angles, angles), dim=-1).unsqueeze(1)
        self.cos = angles.cos()  # [T, 1, D]
        self.sin = angles.sin()  # [T, 1, D]

    def rotate(self, x: Tensor) -> Tensor:
        """x: [T, heads, D]."""
        turned: Tensor = rotate_half(x)
        return x * self.cos.to(x.dtype) + turned * self.sin.to(x.dtype)


class Eagle3Head(nn.Module):
    """All weights of a head, named as in published checkpoints, and the maps of its draft vocabulary."""

    d2t: Tensor
    """The offset from draft id to target id, int64 [Vd]: target token id = draft id + d2t[draft id]."""
    t2d: Tensor
    """Whether the draft vocabulary has the target's token, bool [V]."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.config = config
        self.fc = nn.Linear(3 * config.hidden_size, config.hidden_size, bias=False)
        self.midlayer = Midlayer(config)
        self.norm = LlamaRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False)
        self.embed_tokens: nn.Embedding | None = None
        """None: the target's embeddings."""
        self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.int64))
        self.register_buffer("t2d", torch.arange(config.vocab_size) < config.draft_vocab_size)

    @property
    def target_token_ids(self) -> Tensor:
        """The target's id of each draft id, int64 [Vd], ascending."""
        return torch.arange(len(self.d2t), device=self.d2t.device) + self.d2t

    def set_draft_vocabulary(self, token_ids: Tensor) -> None:
        """token_ids: int64 [Vd], the target's ids, ascending and distinct. Raises ValueError when they do not fit."""
        if token_ids.shape != self.d2t.shape or bool((token_ids.diff() <= 0).any()):
            raise ValueError(f"a draft vocabulary is {len(self.d2t)} ascending token ids")
        self.d2t.copy_(token_ids - torch.arange(len(token_ids)))
        self.t2d.zero_()
        self.t2d[token_ids] = True

    def fuse(self, features: Tensor) -> Tensor:
        """[T, H], the hidden states that enter the layer, of features [T, 3H]: low, middle, high."""
        fused: Tensor = self.fc(features)
        return fused

    def logits(self, hidden: Tensor) -> Tensor:
        """[T, Vd] of output hidden states [T, H]."""
        logits: Tensor = self.lm_head(self.norm(hidden))
        return logits

    def forward(self, embeddings: Tensor, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Run one sequence from its start, causally: output hidden states [T, H] and logits [T, Vd].

        embeddings: [T, H] of the tokens; hidden: [T, H], fused features or output hidden states of the
        positions before; positions: int64 [T].
        """
        query, key, value = self.midlayer.project(embeddings, hidden, Rotary(self.config, positions))
        attended = functional.scaled_dot_product_attention(
            query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), is_causal=True, enable_gqa=True
        )
        output = self.midlayer.finish(attended.transpose(0, 1).flatten(1), hidden)
        return output, self.logits(output)
