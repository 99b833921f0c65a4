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


def test_after_a_hit_it_goes_by_the_features_that_have_come(make_head_core, features_of) -> None:
    """Where it would now draft what is being verified, it foresees the same as a core that knows of no hit."""
    sampling, num_compared = MODES["greedy"], 0
    for prompt in PROMPTS:
        first = make_head_core()
        begun(first, prompt, sampling, features_of(prompt), k=1)
        prepared = prepared_of(settle(first))
        for outcome in prepared.outcomes:
            text, fresh, core = (*prompt, *outcome), make_head_core(), make_head_core()
            begun(fresh, text, sampling, features_of(text), k=1)
            events = settle(fresh)
            if proposals_of(events)[0].draft_token_ids != prepared_after(prepared, outcome).draft_token_ids:
                continue
            begun(core, prompt, sampling, features_of(prompt), k=1)
            settle(core)
            features = features_of(text, len(prompt) - 1)
            core.submit(Propose(1, len(text), outcome, 1, features, ahead=AHEAD, is_prepared=True))
            assert settle(core) == [prepared_of(events)]
            num_compared += 1
    assert num_compared > 2


@pytest.mark.parametrize("num_steps", range(1, K + 3))
def test_a_proposal_waits_for_no_more_than_the_step_in_flight(
    make_head_core, asked, features_of, num_steps: int
) -> None:
    core, sampling, text = make_head_core(), MODES["greedy"], PROMPTS[0]
    begun(core, text, sampling, features_of(text))
    for _ in range(num_steps):
        assert not [event for event in core.step() if isinstance(event, Predrafted)]
    assert core.has_work
    new = (*asked(text, sampling).draft_token_ids[:2], 60)
    core.submit(Propose(1, len(text) + 3, new, K, features_of((*text, *new), len(text) - 1)))
    core.submit(OpenSequence(2, PROMPTS[1], sampling))
    core.submit(Propose(2, len(PROMPTS[1]), (), K, features_of(PROMPTS[1])))
    answers = {event.sequence_id: event.draft_token_ids for event in proposals_of(core.step())}
    assert answers == {
        1: asked((*text, *new), sampling).draft_token_ids,
        2: asked(PROMPTS[1], sampling).draft_token_ids,
    }
    assert not core.has_work


def test_of_a_hit_that_it_does_not_know_it_drafts_nothing_ahead(make_head_core, asked, features_of) -> None:
    core, sampling, text = make_head_core(), MODES["greedy"], PROMPTS[0]
    begun(core, text, sampling, features_of(text))
    settle(core)
    core.submit(Propose(1, len(text) + 1, (62,), K, ahead=AHEAD, is_prepared=True))
    assert not core.has_work
    text = (*text, 62, 9)
    core.submit(Propose(1, len(text), (9,), K, features_of(text, len(PROMPTS[0]) - 1)))
    assert proposals_of(settle(core)) == [asked(text, sampling)]


@pytest.mark.parametrize("changes", [{"kv_cache_tokens": 48}, {"max_batch_tokens": 9}], ids=["cache", "step"])
def test_where_there_is_no_room_it_proposes_and_drafts_nothing_ahead(
    make_head_core, asked, features_of, changes
) -> None:
    core, sampling = make_head_core(**changes), MODES["greedy"]
    begun(core, PROMPTS[0], sampling, features_of(PROMPTS[0]))
    events = settle(core)
    assert proposals_of(events)[0].draft_token_ids == asked(PROMPTS[0], sampling).draft_token_ids
    assert not [event for event in events if isinstance(event, Predrafted)]
    core.submit(CloseSequence(1))
    assert core.kv_cache.pool.num_used == 0


def test_its_blocks_go_to_whoever_asks_for_a_proposal(make_head_core, asked, features_of) -> None:
    core, sampling = make_head_core(kv_cache_tokens=80), MODES["greedy"]
    core.submit(OpenSequence(2, PROMPTS[2], sampling))
    begun(core, PROMPTS[0], sampling, features_of(PROMPTS[0]))
    prepared_of(settle(core))
    core.submit(Propose(2, len(PROMPTS[2]), (), K, features_of(PROMPTS[2])))
    assert proposals_of(settle(core))[0].draft_token_ids == asked(PROMPTS[2], sampling).draft_token_ids
