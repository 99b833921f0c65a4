"""Attention of a parallel head in training: text over text, and the slots of each draft over text and one another.

Shapes: B rows, T tokens of a row, M anchors, S slots of each, N query heads, H key/value heads, G = N / H, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def attend_text(query: Tensor, key: Tensor, value: Tensor, sees: Tensor) -> Tensor:
    """[B, T, N * D]; query [B, T, N, D], key and value [B, T, H, D], sees bool [B, T, T]."""
    group = query.shape[2] // key.shape[2]
    attended = functional.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.repeat_interleave(group, 2).transpose(1, 2),
        value.repeat_interleave(group, 2).transpose(1, 2),
        attn_mask=sees.unsqueeze(1),
    )
    return attended.transpose(1, 2).flatten(2)


def attend_slots(
    query: Tensor, key: Tensor, value: Tensor, text_key: Tensor, text_value: Tensor, sees: Tensor
) -> Tensor:
    """[B, M, S, N * D]; a slot sees the text that its anchor sees, and its draft's slots up to itself.

    query [B, M, S, N, D], key and value [B, M, S, H, D]; text_key, text_value [B, T, H, D]; sees bool [B, M, T].
    Plain products: a kernel would compute each draft's few slots for all drafts.
    """
    batch, num_anchors, num_slots, num_heads, size = query.shape
    heads, num_tokens = key.shape[3], text_key.shape[1]
    grouped = query.unflatten(3, (heads, -1)).permute(0, 3, 4, 1, 2, 5)  # [B, H, G, M, S, D]
    grouped = grouped * size**-0.5
    shape = grouped.shape[:-1]
    own_key, own_value = (part.permute(0, 3, 1, 2, 4).unsqueeze(2) for part in (key, value))  # [B, H, 1, M, S, D]
    text_scores = grouped.reshape(batch, heads, -1, size) @ text_key.permute(0, 2, 3, 1)
    text_scores = text_scores.view(*shape, num_tokens).masked_fill(~sees[:, None, None, :, None], -torch.inf)
    order = torch.ones(num_slots, num_slots, dtype=torch.bool, device=query.device).tril()
    own_scores = (grouped @ own_key.transpose(-1, -2)).masked_fill(~order, -torch.inf)
    scores = torch.cat((text_scores, own_scores), dim=-1)
    with torch.autocast(query.device.type, enabled=False):  # which would keep float32 of all scores
        weights = scores.softmax(-1)
    text_weights, own_weights = weights.split((num_tokens, num_slots), dim=-1)
    attended = (text_weights.reshape(batch, heads, -1, num_tokens) @ text_value.permute(0, 2, 1, 3)).view(grouped.shape)
    attended = attended + own_weights @ own_value
    return attended.permute(0, 3, 4, 1, 2, 5).reshape(batch, num_anchors, num_slots, num_heads * size)
