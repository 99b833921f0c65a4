"""Samples of texts from the traffic: the target's choice is the token that was verified, and no more is known of it."""

from __future__ import annotations

import torch

from pilotfish.learning.record import LearnedText
from pilotfish.models.feature_codec import decode_features
from pilotfish.training.data.samples import Sample

NUM_LAYERS = 3
"""Feature layers of an EAGLE-3 head."""


def sample_of(text: LearnedText, hidden_size: int) -> Sample:
    """The sample of a text. Its last token decides no other one, and is left out.

    Raises ValueError for a text of fewer than two tokens, or features that are not of its tokens or of other sizes.
    """
    num_rows = len(text.token_ids) - 1
    if num_rows < 1:
        raise ValueError(f"{len(text.token_ids)} tokens decide nothing")
    if text.features.num_tokens != len(text.token_ids):
        raise ValueError(f"features of {text.features.num_tokens} tokens, and {len(text.token_ids)} tokens")
    features = decode_features(text.features, width=NUM_LAYERS * hidden_size, num_layers=NUM_LAYERS)
    token_ids = torch.tensor(text.token_ids)
    prompt_len = min(max(1, text.prompt_len), num_rows)
    choices = token_ids[1:].clone()
    choices[: prompt_len - 1] = -1
    return Sample(
        prompt_len,
        token_ids[:-1],
        features[:-1],
        features.new_empty(0, hidden_size),
        choices,
        torch.zeros(num_rows),
    )
