"""A head drafts ahead as it would within a chain, and what it is asked afterwards is answered as if it had not."""

import pytest

from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.drafting.head_core import HeadCore
from pilotfish.features import FeatureRequest, Features
from pilotfish.messages import (
    CloseSequence,
    Decode,
    Event,
    OpenSequence,
    Predrafted,
    PredraftRequest,
    Proposal,
    Propose,
    Verdict,
)
from pilotfish.types import AcceptanceMode, SamplingParams
from tests.support.engine_events import settle
from tests.support.head_rounds import PROMPTS, MakeHeadCore

K = 3
AHEAD = PredraftRequest(30, (0.6,))
MODES = {
    "greedy": SamplingParams(temperature=0, max_tokens=80),
    "coupled": SamplingParams(temperature=0.1, seed=7, max_tokens=80, frequency_penalty=0.3),
    "rejection": SamplingParams(temperature=0.7, seed=3, max_tokens=80, acceptance=AcceptanceMode.REJECTION),
}


@pytest.fixture
def features_of(target: EngineCore):
    """The features of a text, its last token aside, from a position on."""

    def features(text: tuple[int, ...], first: int = 0) -> Features:
        target.submit(OpenSequence(99, text[:-1], MODES["greedy"]))
        target.submit(Decode(99, len(text) - 1, 1, features=FeatureRequest(first)))
        (verdict,) = (event for event in settle(target) if isinstance(event, Verdict))
        target.submit(CloseSequence(99))
        assert verdict.features is not None
        return verdict.features

    return features


@pytest.fixture
def asked(make_head_core: MakeHeadCore, features_of):
    """What a fresh core proposes."""

    def propose(text: tuple[int, ...], sampling: SamplingParams, k: int = K) -> Proposal:
        core = make_head_core()
        core.submit(OpenSequence(1, text, sampling))
        core.submit(Propose(1, len(text), (), k, features_of(text)))
        (proposal,) = proposals_of(settle(core))
        return proposal

    return propose


def begun(core: HeadCore, text: tuple[int, ...], sampling: SamplingParams, features: Features, k: int = K) -> None:
    core.submit(OpenSequence(1, text, sampling))
    core.submit(Propose(1, len(text), (), k, features, ahead=AHEAD))


def proposals_of(events: list[Event]) -> list[Proposal]:
    return [event for event in events if isinstance(event, Proposal)]


def prepared_of(events: list[Event]) -> Predrafted:
    (prepared,) = (event for event in events if isinstance(event, Predrafted))
    return prepared


def prepared_after(prepared: Predrafted, outcome: tuple[int, ...]) -> Proposal:
    draft = prepared.draft(outcome)
    assert draft is not None
    return draft


@pytest.mark.parametrize("name", ["greedy", "coupled"])
def test_what_its_own_next_token_is_followed_by_is_a_longer_chain(make_head_core, asked, features_of, name) -> None:
    core, sampling = make_head_core(), MODES[name]
    begun(core, PROMPTS[0], sampling, features_of(PROMPTS[0]))
    events = settle(core)
    prepared, chain = prepared_of(events), asked(PROMPTS[0], sampling, 2 * K + 1).draft_token_ids
    assert len(chain) == 2 * K + 1
    assert proposals_of(events)[0].draft_token_ids == chain[:K]
    assert len(prepared.outcomes) == 10
    assert prepared_after(prepared, chain[: K + 1]).draft_token_ids == chain[K + 1 :]


@pytest.mark.parametrize("name", MODES)
def test_after_hits_and_misses_it_answers_as_if_it_had_drafted_nothing_ahead(
    make_head_core, asked, features_of, name
) -> None:
    core, sampling, text = make_head_core(), MODES[name], PROMPTS[0]
    begun(core, text, sampling, features_of(text))
    prepared = prepared_of(settle(core))
    for is_hit in (True, True, False, True, False):
        outcomes = list(prepared.outcomes)
        new = outcomes[len(outcomes) // 2] if is_hit else (prepared.verified_token_ids[0], 63, 1)
        features = features_of((*text, *new), len(text) - 1)
        text = (*text, *new)
        core.submit(Propose(1, len(text), new, K, features, ahead=AHEAD, is_prepared=is_hit))
        events = settle(core)
        assert proposals_of(events) == [] if is_hit else [asked(text, sampling)]
        expected = prepared_after(prepared, new) if is_hit else proposals_of(events)[0]
        prepared = prepared_of(events)
        assert prepared.base_length == len(text)
        assert prepared.verified_token_ids == expected.draft_token_ids
