"""Attention over keys that have been gathered: what is left once a back end knows which."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from pilotfish.models.attention.paged import AttentionShape


def attend_tiles(query: Tensor, key_value: Tensor, mask: Tensor, shape: AttentionShape) -> Tensor:
    """Attention of N tiles of Q rows, each over L keys of its own; returns [N * Q, H * D].

    query: [N * Q, H, D]. key_value: [N, L, 2, H_kv, D]. mask: broadcasts to [N, H_kv, Q * G, L], and is added; G
    query heads share a key head.
    """
    num_tiles, _, _, num_kv, dim = key_value.shape
    num_heads = query.shape[1]
    group_size = num_heads // num_kv
    key, value = key_value[:, :, 0].transpose(1, 2), key_value[:, :, 1].transpose(1, 2)  # [N, H_kv, L, D]
    folded = query.view(num_tiles, -1, num_kv, group_size, dim).transpose(1, 2)
    folded = folded.reshape(num_tiles, num_kv, -1, dim)  # [N, H_kv, Q * G, D]
    if shape.softcap is None:
        output = F.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=shape.scale)
    else:
        scores = torch.matmul(folded, key.transpose(-1, -2)).float() * shape.scale
        scores = shape.softcap * torch.tanh(scores / shape.softcap) + mask
        output = torch.matmul(scores.softmax(-1).to(value.dtype), value)
    output = output.view(num_tiles, num_kv, -1, group_size, dim).transpose(1, 2)
    return output.reshape(-1, num_heads * dim)
