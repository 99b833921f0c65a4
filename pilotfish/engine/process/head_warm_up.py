"""First drafts of a head before the first request: what is done lazily once must not be in somebody's answer."""

from __future__ import annotations

import torch

from pilotfish.engine.drafting.head_core import HeadCore
from pilotfish.engine.process.warm_up import PROMPT, SAMPLINGS
from pilotfish.errors import InternalError
from pilotfish.features import FeatureFormat
from pilotfish.messages import CloseSequence, OpenSequence, Proposal, Propose
from pilotfish.models.feature_codec import encode_features


def warm_up_head(core: HeadCore) -> None:
    """Drafts in every mode; leaves no sequence behind. Raises InternalError when there are none."""
    model = core.model
    token_ids = tuple(token_id % model.vocab_size for token_id in PROMPT)[: model.max_context_tokens // 2]
    values = torch.zeros(len(token_ids) - 1, core.feature_width)
    for kind, sampling in zip((FeatureFormat.BF16, FeatureFormat.FP8, FeatureFormat.BF16), SAMPLINGS, strict=True):
        features = encode_features(values, 0, kind, num_layers=len(model.feature_layers))
        core.submit(OpenSequence(0, token_ids, sampling))
        core.submit(Propose(0, len(token_ids), (), min(2, core.limits.max_draft_tokens), features))
        if not any(isinstance(event, Proposal) and event.draft_token_ids for event in core.step()):
            raise InternalError("the draft head cannot draft; the log says why")
        core.submit(CloseSequence(0))
