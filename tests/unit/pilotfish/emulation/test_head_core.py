"""An emulated head in the draft service."""

from __future__ import annotations

from typing import Any

import pytest

from pilotfish.emulation.head_core import EmulatedHeadCore
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import RooflineCost
from pilotfish.features import Features
from pilotfish.messages import Event, Opened, OpenSequence, Predrafted, PredraftRequest, Proposal, Propose
from pilotfish.types import Limits, ModelInfo, SamplingParams

LANGUAGE_MODEL = HashLanguageModel()
GREEDY = SamplingParams(temperature=0, max_tokens=1000)
PROMPT = tuple(range(1, 31))
K = 3


def ready(**options: Any) -> EmulatedHeadCore:
    """With one sequence, opened."""
    model = ModelInfo(model_id="emulated", tokenizer_fingerprint="", vocab_size=256, max_context_tokens=4096)
    per_row = RooflineCost(weights_s=0.0, token_s=1.0)
    core = EmulatedHeadCore(
        model, Limits(max_draft_tokens=8, max_sequences=4), LANGUAGE_MODEL, step_cost=per_row, **options
    )
    core.submit(OpenSequence(1, PROMPT, GREEDY))
    assert drain(core)[1] == [Opened(1, 0)]
    return core


def drain(core: EmulatedHeadCore) -> tuple[list[int], list[Event]]:
    """Rows of its steps, and what it says."""
    rows, events = [], list[Event]()
    while core.has_work:
        events += core.step()
        rows.append(round(core.step_s))
    return rows, events


def propose(length: int, new: tuple[int, ...] = (), *, first: int = 0, ahead: bool = True, **more: Any) -> Propose:
    request = PredraftRequest(30, (0.8,)) if ahead else None
    features = Features(first, length - 1 - first, bytes(length - 1 - first))
    return Propose(1, length, new, K, ahead=request, features=features, **more)


def test_it_reads_the_prompt_as_far_as_there_are_features_when_it_is_asked() -> None:
    core = ready()
    core.submit(propose(30, first=20, ahead=False))
    rows, events = drain(core)
    assert rows == [10, 1, 1]
    assert [type(event) for event in events] == [Proposal]


@pytest.mark.parametrize("drafts_ahead", [True, False])
def test_it_goes_through_its_drafts_again_before_it_drafts_ahead(*, drafts_ahead: bool) -> None:
    core = ready(drafts_ahead=drafts_ahead)
    core.submit(propose(30))
    rows, events = drain(core)
    assert rows[:3] == [30, 1, 1]
    # The last token, the drafts, and then a step for each token of ten outcomes.
    assert rows[3:] == ([1, K, 10, 10, 10] if drafts_ahead else [])
    assert [type(event) for event in events] == [Proposal, Predrafted][: 1 + drafts_ahead]


def test_what_was_foreseen_is_drafted_ahead_of_without_an_answer() -> None:
    core = ready(acceptance=1.0)
    core.submit(propose(30))
    _, (proposal, prepared) = drain(core)
    assert isinstance(proposal, Proposal)
    assert isinstance(prepared, Predrafted)
    committed = [*PROMPT, *proposal.draft_token_ids]
    new = (*proposal.draft_token_ids, LANGUAGE_MODEL.next_token(committed, GREEDY))
    draft = prepared.draft(new)
    assert draft is not None
    core.submit(propose(30 + len(new), new, first=29, is_prepared=True))
    rows, (again,) = drain(core)
    assert rows == [len(new), K, 10, 10, 10], "the newest features' rows, then the drafts that were prepared"
    assert isinstance(again, Predrafted)
    assert again.verified_token_ids == draft.draft_token_ids


def test_drafts_made_ahead_have_an_acceptance_of_their_own() -> None:
    core = ready(acceptance=1.0, acceptance_ahead=0.0)
    core.submit(propose(30))
    _, (proposal, prepared) = drain(core)
    assert isinstance(proposal, Proposal)
    assert isinstance(prepared, Predrafted)
    text = list(PROMPT)
    for token_id in proposal.draft_token_ids:
        assert token_id == LANGUAGE_MODEL.next_token(text, GREEDY)
        text.append(token_id)
    for accepted, own, start in zip(prepared.num_accepted_tokens, prepared.own_token_ids, range(0, 30, K), strict=True):
        branch = [*PROMPT, *proposal.draft_token_ids[:accepted], own]
        assert prepared.draft_token_ids[start] != LANGUAGE_MODEL.next_token(branch, GREEDY)
