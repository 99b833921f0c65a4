"""Every kind of an engine's work once, before anybody waits for it."""

from __future__ import annotations

import torch

from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.drafting.head_core import HeadCore
from pilotfish.errors import InternalError
from pilotfish.messages import (
    CloseSequence,
    Command,
    Decode,
    Event,
    OpenSequence,
    PredraftRequest,
    Proposal,
    Propose,
    SequenceError,
    Verify,
)
from pilotfish.models.feature_codec import encode_features
from pilotfish.types import AcceptanceMode, SamplingParams, SequenceErrorCode, SparseDistribution, TreeRequest

_PROMPT = tuple(range(1, 40))
_SAMPLINGS = (
    SamplingParams(temperature=0, num_logprobs=1),
    SamplingParams(temperature=0.8, top_p=0.9, top_k=40, repetition_penalty=1.1),
    SamplingParams(acceptance=AcceptanceMode.REJECTION),
)


def warm_up(core: EngineCore) -> None:
    """Every kind of work once in every mode; leaves no sequence and no cached prefix behind.

    Raises: InternalError when a step fails.
    """
    token_ids = tuple(token_id % core.model.vocab_size for token_id in _PROMPT)[: core.model.max_context_tokens // 2]
    length, drafts = len(token_ids), token_ids[:2]
    one_hots = tuple(SparseDistribution((token_id,), (1.0,)) for token_id in drafts)
    for sampling in _SAMPLINGS:
        opened = OpenSequence(0, token_ids, sampling)
        _run(core, opened, Decode(0, length, 1))
        _run(core, Verify(0, length + 1, drafts, one_hots, parents=(-1, -1)))
        _run(core, CloseSequence(0), opened, Propose(0, length, (), 2))
        _run(core, Propose(0, length, (), 2, tree=TreeRequest(4, 2)))
        _run(core, CloseSequence(0), opened, Decode(0, length, 4, num_draft_tokens=2))
        _run(core, CloseSequence(0))
    core.kv_cache.pool.clear_cache()


def warm_up_head(core: HeadCore) -> None:
    """Drafts in every mode, and ahead of them; leaves no sequence behind. Raises InternalError when there are none."""
    model = core.model
    token_ids = tuple(token_id % model.vocab_size for token_id in _PROMPT)[: model.max_context_tokens // 2]
    values = torch.zeros(len(token_ids) - 1, core.feature_width)
    features = encode_features(values, 0)
    for sampling in _SAMPLINGS:
        core.submit(OpenSequence(0, token_ids, sampling))
        num_drafts = min(2, core.limits.max_draft_tokens)
        ahead = PredraftRequest(4 * num_drafts, (0.5,))
        core.submit(Propose(0, len(token_ids), (), num_drafts, features, ahead=ahead))
        events: list[Event] = []
        while core.has_work:
            events.extend(core.step())
        if not any(isinstance(event, Proposal) and event.draft_token_ids for event in events):
            raise InternalError("the draft head cannot draft; the log says why")
        core.submit(CloseSequence(0))


def _run(core: EngineCore, *commands: Command) -> None:
    for command in commands:
        core.submit(command)
    while core.has_work:
        for event in core.step():
            if isinstance(event, SequenceError) and event.code is SequenceErrorCode.INTERNAL:
                raise InternalError(f"the engine cannot compute its first steps; its log says why: {event.message}")
