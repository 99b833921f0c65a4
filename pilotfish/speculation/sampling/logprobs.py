"""Log-probabilities of output tokens under the target's unmodified distribution."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pilotfish.speculation.sampling.blocks import BlockedLogits, block_sums
from pilotfish.speculation.sampling.transfer import to_device
from pilotfish.types import TokenLogprobs


def token_logprobs(blocks: BlockedLogits, token_ids: Sequence[int], num_logprobs: Sequence[int]) -> list[TokenLogprobs]:
    """Log-probabilities of token_ids[r] under row r, with its num_logprobs[r] likeliest tokens, descending.

    blocks: raw logits [R, V], before penalties, bias and temperature.
    """
    chosen_ids = to_device(token_ids, torch.int64, blocks.logits.device).unsqueeze(1)
    greatest = blocks.max()
    log_norm = block_sums((blocks.logits - greatest).exp_()).log_() + greatest  # [R, 1]
    chosen = (blocks.logits.gather(1, chosen_ids) - log_norm).squeeze(1).tolist()
    num_ranked = max(num_logprobs)
    if num_ranked == 0:
        return [TokenLogprobs(logprob) for logprob in chosen]
    top_logits, top_ids = blocks.rank(num_ranked)
    top = (top_logits - log_norm).tolist()
    ids = top_ids.tolist()
    return [
        TokenLogprobs(logprob, tuple(ids[row][:num]), tuple(top[row][:num]))
        for row, (logprob, num) in enumerate(zip(chosen, num_logprobs, strict=True))
    ]
