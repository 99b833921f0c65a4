"""The features that verdicts bring are those of one forward over the whole text, whatever way the text came about."""

import copy
import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from transformers import LlamaForCausalLM

from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.feature_store import MAX_FEATURE_TOKENS, FeatureStore
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.features import FeatureRequest, Features
from pilotfish.messages import CloseSequence, Decode, OpenSequence, Predrafted, Verdict, Verify
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.types import SamplingParams
from tests.support.engine_events import GreedyText, MakeCore, settle

VOCAB, CONTEXT, LAYERS = 64, 128, (0, 1, 1)
GREEDY = SamplingParams(temperature=0, max_tokens=100)


@pytest.fixture
def make_featured(make_core: MakeCore) -> MakeCore:
    """A core that keeps features; deterministic, so that no bit depends on how the text is cut into steps."""
    return partial(make_core, feature_layers=LAYERS, deterministic=True)


@pytest.fixture
def whole_text_features(make_featured: MakeCore) -> Callable[[Sequence[int]], Features]:
    """Of all but the last token, from one step of a core of its own."""

    def features(token_ids: Sequence[int]) -> Features:
        core = make_featured(max_batch_tokens=CONTEXT)
        core.submit(OpenSequence(1, tuple(token_ids[:-1]), GREEDY))
        core.submit(Decode(1, len(token_ids) - 1, 1, features=FeatureRequest(0)))
        found = verdict_of(core).features
        assert found is not None
        return found

    return features


def verdict_of(core: EngineCore, sequence_id: int = 1) -> Verdict:
    """The last verdict of all that the core has to do."""
    verdicts = [event for event in settle(core) if isinstance(event, Verdict) and event.sequence_id == sequence_id]
    return verdicts[-1]


def prompt_of(length: int, seed: int = 1) -> tuple[int, ...]:
    source = random.Random(seed)
    return tuple(source.randrange(VOCAB) for _ in range(length))


def test_each_verdict_after_which_the_target_goes_on_by_itself_has_them(
    make_featured: MakeCore, greedy_text: GreedyText, whole_text_features: Callable[[Sequence[int]], Features]
) -> None:
    core, prompt = make_featured(), prompt_of(20)
    text, length = [*prompt, *greedy_text(prompt, 12)], len(prompt)
    core.submit(OpenSequence(1, prompt, GREEDY))
    core.submit(Verify(1, length, tuple(text[length : length + 2]), features=FeatureRequest(length - 5)))
    verdicts: list[Verdict] = []
    while core.has_work:
        events = core.step()
        foreseen = [tuple(text[start : start + 2]) for start in (length, length + 3)]
        core.submit(Predrafted(1, length, foreseen[0], (2,), (text[length + 2],), foreseen[1]))
        length += 3
        verdicts += [event for event in core.go_on(events) if isinstance(event, Verdict)]
    assert [verdict.num_next_draft_tokens for verdict in verdicts][:3] == [2, 2, 2]
    pieces = [verdict.features for verdict in verdicts]
    assert all(piece is not None for piece in pieces)
    whole = whole_text_features(text[: pieces[-1].end_position + 1]).since(len(prompt) - 5)
    assert b"".join(piece.data for piece in pieces) == whole.data
    core.submit(Verify(1, verdicts[-1].base_length + len(verdicts[-1].token_ids), ()))
    assert verdict_of(core).features is None  # it was not asked for them


def test_chunks_of_a_prompt_and_steps_of_a_run_come_as_one(
    make_featured: MakeCore, whole_text_features: Callable[[Sequence[int]], Features]
) -> None:
    core = make_featured(max_batch_tokens=12)
    prompt = prompt_of(50)
    core.submit(OpenSequence(1, prompt, GREEDY))
    core.submit(Decode(1, 50, 6, features=FeatureRequest(0)))
    verdicts = [event for event in settle(core) if isinstance(event, Verdict)]
    assert [verdict.features is None for verdict in verdicts] == [True] * 5 + [False]
    text = [*prompt, *(token_id for verdict in verdicts for token_id in verdict.token_ids)]
    assert verdicts[-1].features == whole_text_features(text)


def test_rejected_drafts_leave_nothing_and_accepted_ones_what_they_are(
    make_featured: MakeCore, whole_text_features: Callable[[Sequence[int]], Features], greedy_text: GreedyText
) -> None:
    core = make_featured()
    text = list(prompt_of(21))
    core.submit(OpenSequence(1, tuple(text), GREEDY))
    known: list[Features] = []
    source = random.Random(2)
    for num_right in (3, 0, 5, 1):
        drafts = greedy_text(text, 6)
        drafts[num_right] = (drafts[num_right] + 1 + source.randrange(VOCAB - 1)) % VOCAB
        end = known[-1].end_position if known else 0
        core.submit(Verify(1, len(text), tuple(drafts), features=FeatureRequest(end)))
        verdict = verdict_of(core)
        assert verdict.num_accepted_tokens == num_right
        assert verdict.features is not None
        assert verdict.features.end_position == len(text) + num_right
        text.extend(verdict.token_ids)
        known.append(verdict.features)
    whole = whole_text_features(text)
    assert b"".join(features.data for features in known) == whole.data
    assert sum(features.num_tokens for features in known) == whole.num_tokens == len(text) - 1


def test_a_tree_brings_the_features_of_its_accepted_path(
    make_featured: MakeCore, whole_text_features: Callable[[Sequence[int]], Features], greedy_text: GreedyText
) -> None:
    core = make_featured()
    text = list(prompt_of(9))
    first, second, third = greedy_text(text, 3)
    wrong = [(token_id + 1) % VOCAB for token_id in (first, second, third)]
    core.submit(OpenSequence(1, tuple(text), GREEDY))
    core.submit(
        Verify(
            1,
            len(text),
            (wrong[0], first, wrong[1], second, third),
            parents=(-1, -1, 1, 1, 3),
            features=FeatureRequest(0),
        )
    )
    verdict = verdict_of(core)
    assert verdict.num_accepted_tokens == 3
    text.extend(verdict.token_ids)
    assert verdict.features == whole_text_features(text)


def test_a_cached_prefix_comes_with_its_features(
    make_featured: MakeCore, whole_text_features: Callable[[Sequence[int]], Features]
) -> None:
    core = make_featured()
    shared = prompt_of(40)
    core.submit(OpenSequence(7, shared, GREEDY))
    core.submit(Decode(7, 40, 1))
    settle(core)
    core.submit(CloseSequence(7))
    text = [*shared, *prompt_of(5, seed=3)]
    core.submit(OpenSequence(1, tuple(text), GREEDY))
    core.submit(Decode(1, len(text), 1, features=FeatureRequest(0)))
    verdict = verdict_of(core)
    text.extend(verdict.token_ids)
    assert verdict.features == whole_text_features(text)


def test_preempted_sequences_lose_no_features(
    make_featured: MakeCore, whole_text_features: Callable[[Sequence[int]], Features]
) -> None:
    core = make_featured(kv_cache_tokens=96, prefix_caching=False)
    texts = {sequence_id: list(prompt_of(30, seed=sequence_id)) for sequence_id in (1, 2, 3)}
    for sequence_id, text in texts.items():
        core.submit(OpenSequence(sequence_id, tuple(text), GREEDY))
    known = dict.fromkeys(texts, b"")
    ends = dict.fromkeys(texts, 0)
    for _ in range(3):
        for sequence_id, text in texts.items():
            request = FeatureRequest(ends[sequence_id])
            core.submit(Decode(sequence_id, len(text), 5, features=request))
        for event in settle(core):
            if isinstance(event, Verdict):
                texts[event.sequence_id].extend(event.token_ids)
                if event.features is not None:
                    assert event.features.first_position == ends[event.sequence_id]
                    known[event.sequence_id] += event.features.data
                    ends[event.sequence_id] = event.features.end_position
    assert core.num_preemptions > 0
    for sequence_id, text in texts.items():
        assert known[sequence_id] == whole_text_features(text).data


def test_what_is_asked_for_is_sent_once_and_nothing_else(make_featured: MakeCore) -> None:
    core = make_featured()
    core.submit(OpenSequence(1, prompt_of(8), SamplingParams(temperature=0, max_tokens=4)))
    core.submit(Decode(1, 8, 1, features=FeatureRequest(5)))
    features = verdict_of(core).features
    assert features is not None
    assert (features.first_position, features.num_tokens) == (5, 3)
    core.submit(Decode(1, 9, 1))
    assert verdict_of(core).features is None
    core.submit(Decode(1, 10, 1, features=FeatureRequest(40)))
    assert verdict_of(core).features is None  # from a position that is not computed yet
    core.submit(Decode(1, 11, 1, features=FeatureRequest(0)))
    assert verdict_of(core).features is None  # the answer has ended


def test_a_verdict_carries_the_newest_at_most(make_featured: MakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_FEATURE_TOKENS >= 512  # the orchestrator's window
    monkeypatch.setattr("pilotfish.engine.core.feature_store.MAX_FEATURE_TOKENS", 10)
    core = make_featured()
    core.submit(OpenSequence(1, prompt_of(30), GREEDY))
    core.submit(Decode(1, 30, 1, features=FeatureRequest(0)))
    features = verdict_of(core).features
    assert features is not None
    assert (features.first_position, features.end_position) == (20, 30)


def test_a_layer_that_the_model_lacks_is_refused(tiny_llama: LlamaForCausalLM) -> None:
    decoder = TransformersDecoder(copy.deepcopy(tiny_llama), deterministic=True, max_context_tokens=CONTEXT)
    with pytest.raises(ValueError, match="layer 3 cannot be captured"):
        FeatureStore(decoder, (0, 1, 3))


def test_its_memory_can_be_taken_before_the_first_step(tiny_llama: LlamaForCausalLM) -> None:
    """On a GPU it is, so that a cache that is too large fails at the start."""
    decoder = TransformersDecoder(copy.deepcopy(tiny_llama), deterministic=False, max_context_tokens=CONTEXT)
    hidden_size = tiny_llama.config.hidden_size
    store = FeatureStore(decoder, LAYERS, hidden_size)
    store.allocate(3)
    sequence = EngineSequence(OpenSequence(1, (1,) * 20, GREEDY), 0)
    sequence.block_ids = [1, 2]
    assert store.read(sequence, 0, 20).shape == (20, len(LAYERS) * hidden_size)
