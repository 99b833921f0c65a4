"""Drafts among the tokens that a draft model has in common with a target of another vocabulary."""

import pytest

from pilotfish.messages import (
    LearnVocabulary,
    OpenSequence,
    Predrafted,
    PredraftRequest,
    Proposal,
    Propose,
    UseVocabulary,
)
from pilotfish.types import AcceptanceMode, SamplingParams, TreeRequest
from tests.support.engine_events import MakeCore, settle

PROMPT = (1, 5, 9, 2, 33, 7)
COMMON = tuple(range(3, 40))
GREEDY = SamplingParams(temperature=0, max_tokens=100)
SAMPLINGS = {
    "greedy": GREEDY,
    "coupled": SamplingParams(temperature=1.5, seed=11, max_tokens=100),
    "rejection": SamplingParams(temperature=1.5, seed=11, acceptance=AcceptanceMode.REJECTION, max_tokens=100),
}


def drafted(core, command: OpenSequence, proposal: Propose, use: UseVocabulary | None = None) -> list[Proposal]:
    core.submit(LearnVocabulary(7, COMMON, COMMON))
    core.submit(command)
    if use is not None:
        core.submit(use)
    core.submit(proposal)
    return [event for event in settle(core) if isinstance(event, Proposal | Predrafted)]


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize(
    "changes", [{}, {"tree": TreeRequest(6, 2)}, {"ahead": PredraftRequest(12, (0.6,))}], ids=["chain", "tree", "ahead"]
)
def test_they_are_those_of_a_drafter_that_is_held_to_these_tokens(
    make_core: MakeCore, sampling: SamplingParams, changes: dict[str, TreeRequest | PredraftRequest]
) -> None:
    ask = Propose(1, len(PROMPT), (), 3, **changes)  # type: ignore[arg-type]
    held = SamplingParams(
        **{name: getattr(sampling, name) for name in sampling.__struct_fields__} | {"allowed_token_ids": COMMON}
    )
    expected = drafted(make_core(), OpenSequence(1, PROMPT, held), ask)
    events = drafted(make_core(), OpenSequence(1, PROMPT, GREEDY), ask, UseVocabulary(1, 7, sampling))
    assert [event.draft_token_ids for event in events] == [event.draft_token_ids for event in expected]
    assert {token_id for event in events for token_id in event.draft_token_ids} <= set(COMMON)
    if not changes:
        assert [event.draft_probs for event in events] == [event.draft_probs for event in expected]


def test_other_ids_have_other_noise_and_places(make_core: MakeCore) -> None:
    """So hot that noise alone decides: the target's, at its place in the target's text."""
    hot = SamplingParams(temperature=1e9, seed=4, max_tokens=100)
    command, ask = OpenSequence(1, PROMPT, GREEDY), Propose(1, len(PROMPT), (), 2)
    (here,) = drafted(make_core(), command, ask, UseVocabulary(1, 7, hot))
    (shifted,) = drafted(make_core(), command, ask, UseVocabulary(1, 7, hot, position_shift=1))
    assert shifted.draft_token_ids[0] == here.draft_token_ids[1]
    core = make_core()
    core.submit(LearnVocabulary(7, COMMON[::-1], COMMON))
    core.submit(command)
    core.submit(UseVocabulary(1, 7, hot))
    core.submit(ask)
    (turned,) = (event for event in settle(core) if isinstance(event, Proposal))
    assert [COMMON[COMMON[::-1].index(each)] for each in turned.draft_token_ids] == list(here.draft_token_ids)


def test_each_draft_that_is_drawn_has_noise_of_its_own(make_core: MakeCore) -> None:
    """Also where the target's text has grown by a token, and the draft model's tokens are as many as before."""
    hot = SamplingParams(temperature=1e9, seed=4, max_tokens=100, acceptance=AcceptanceMode.REJECTION)
    core = make_core()
    (first,) = drafted(
        core, OpenSequence(1, PROMPT, GREEDY), Propose(1, len(PROMPT) + 1, (8,), 6), UseVocabulary(1, 7, hot)
    )
    core.submit(UseVocabulary(1, 7, hot, position_shift=1))
    core.submit(Propose(1, len(PROMPT) + 1, (9,), 5))
    (second,) = (event for event in settle(core) if isinstance(event, Proposal))
    same = [one == other for one, other in zip(first.draft_token_ids[1:], second.draft_token_ids, strict=True)]
    assert not all(same)


def test_neighbours_draft_with_all_of_their_own(make_core: MakeCore) -> None:
    core, sampling = make_core(), SAMPLINGS["coupled"]
    (alone,) = drafted(make_core(), OpenSequence(1, PROMPT, sampling), Propose(1, len(PROMPT), (), 4))
    core.submit(LearnVocabulary(7, COMMON, COMMON))
    for sequence_id in (1, 2, 3):
        core.submit(OpenSequence(sequence_id, PROMPT, sampling))
    core.submit(UseVocabulary(2, 7, sampling))
    core.submit(UseVocabulary(3, 7, sampling))
    core.submit(UseVocabulary(3))
    for sequence_id in (1, 2, 3):
        core.submit(Propose(sequence_id, len(PROMPT), (), 4))
    proposals = {event.sequence_id: event for event in settle(core) if isinstance(event, Proposal)}
    assert proposals[1].draft_token_ids == proposals[3].draft_token_ids == alone.draft_token_ids
    assert set(proposals[2].draft_token_ids) <= set(COMMON)
    assert not set(alone.draft_token_ids) <= set(COMMON)
