"""Features between target and drafter: what is asked for, kept, and handed on."""

from __future__ import annotations

import pytest

from orchestrator.rounds.drafter_clients.feature_feed import WINDOW_TOKENS, FeatureFeed
from pilotfish.features import FeatureRequest, Features
from pilotfish.types import ModelInfo

LAYERS = (2, 15, 27)


def model(**changes: object) -> ModelInfo:
    values = {"model_id": "m", "tokenizer_fingerprint": "t", "vocab_size": 9, "max_context_tokens": 4096, **changes}
    return ModelInfo(**values)


HEAD = model(proposer="eagle3", feature_layers=LAYERS)
TARGET = model(feature_layers=LAYERS)


def features(first: int, num_tokens: int) -> Features:
    """Two bytes a token that tell its position."""
    data = b"".join(position.to_bytes(2, "little") for position in range(first, first + num_tokens))
    return Features(first, num_tokens, data)


@pytest.fixture
def feed() -> FeatureFeed:
    feed = FeatureFeed(LAYERS)
    feed.want(HEAD)
    return feed


def test_nothing_is_asked_for_unless_a_drafter_wants_it() -> None:
    feed = FeatureFeed(LAYERS)
    assert feed.request(TARGET, 40) is None
    feed.want(model(proposer="ngram"))
    assert feed.request(TARGET, 40) is None
    feed.want(HEAD)
    assert feed.request(TARGET, 40) == FeatureRequest(0)


def test_a_target_that_keeps_other_layers_is_not_asked_and_the_reason_names_both(feed: FeatureFeed) -> None:
    assert feed.shortage(HEAD) == ""
    assert feed.request(model(feature_layers=()), 40) is None
    assert "needs features of the target's layers [2, 15, 27], and the target keeps none" in feed.shortage(HEAD)
    assert feed.request(model(feature_layers=(1, 2, 3)), 40) is None
    assert "those of layers [1, 2, 3]" in feed.shortage(HEAD)
    assert feed.shortage(model(proposer="ngram")) == ""
    assert feed.request(TARGET, 40) is not None
    assert feed.shortage(HEAD) == ""


def test_only_what_is_missing_is_asked_for(feed: FeatureFeed) -> None:
    feed.add(features(0, 40))
    assert feed.request(TARGET, 41) == FeatureRequest(40)
    feed.add(features(40, 3))
    assert feed.request(TARGET, 44) == FeatureRequest(43)
    # After a long run without features the oldest are not worth their bytes.
    assert feed.request(TARGET, 5000) == FeatureRequest(5000 - WINDOW_TOKENS)


def test_of_a_prompt_medusa_heads_are_sent_the_last_token() -> None:
    feed = FeatureFeed((30,))
    feed.want(model(proposer="medusa", feature_layers=(30,)))
    assert feed.request(model(feature_layers=(30,)), 400) == FeatureRequest(399)


def test_pieces_are_handed_on_as_one_from_any_position_on(feed: FeatureFeed) -> None:
    assert feed.since(0) is None
    for first, num_tokens in ((5, 4), (9, 1), (10, 3)):
        feed.add(features(first, num_tokens))
    assert feed.since(0) == features(5, 8)
    assert feed.since(7) == features(7, 6)
    assert feed.since(9) == features(9, 4)
    assert feed.since(13) is None


def test_a_drafter_with_other_needs_starts_with_nothing(feed: FeatureFeed) -> None:
    feed.add(features(0, 8))
    feed.want(HEAD)
    assert not feed.is_empty
    feed.want(model(proposer="eagle3", feature_layers=LAYERS[:1]))
    assert feed.is_empty
    assert feed.request(TARGET, 9) is None


def test_what_no_window_reaches_is_dropped(feed: FeatureFeed) -> None:
    feed.add(features(0, 10))
    feed.add(features(10, WINDOW_TOKENS - 1))
    kept = feed.since(0)
    assert kept is not None
    assert kept.first_position == 0, "its last token is within reach"
    feed.add(features(9 + WINDOW_TOKENS, 1))
    kept = feed.since(0)
    assert kept is not None
    assert kept.first_position == 10


def test_after_a_stop_nothing_is_asked_for_and_nothing_is_left(feed: FeatureFeed) -> None:
    feed.add(features(0, 10))
    feed.stop()
    assert feed.request(TARGET, 40) is None
    assert feed.since(0) is None


def test_int8_is_asked_for_where_the_drafter_takes_it_and_forms_are_not_mixed(feed: FeatureFeed) -> None:
    feed.add(features(0, 10))
    feed.want(model(proposer="eagle3", feature_layers=LAYERS, takes_int8_features=True))
    assert feed.request(TARGET, 40) == FeatureRequest(0, int8=True), "what another drafter got is of no use"
    feed.add(features(0, 10))
    feed.add(Features(10, 3, bytes(3)))
    kept = feed.since(0)
    assert kept is not None
    assert (kept.first_position, kept.token_bytes) == (10, 1), "the target is another one"
