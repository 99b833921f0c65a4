"""Texts that are kept to learn from have the features of their own tokens, whatever way the text came about."""

from collections.abc import Callable

import pytest
import torch

from pilotfish.engine.learning.head_versions import HeadVersions
from pilotfish.engine.learning.recorder import Recorder
from pilotfish.features import FeatureRequest
from pilotfish.learning.record import LearnedText
from pilotfish.messages import CloseSequence, Decode, OpenSequence
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.feature_codec import decode_features, encode_features
from pilotfish.types import SamplingParams, TreeRequest
from tests.support.engine_events import GreedyText, MakeCore, prompts, settle, verdicts_of
from tests.unit.pilotfish.engine.core.test_in_target_drafting import Oracle, Target

CONTEXT, LAYERS, WIDTH = 128, (0, 1, 1), 3 * 32
GREEDY = SamplingParams(temperature=0, max_tokens=60)


@pytest.fixture
def features_of(make_core: MakeCore) -> Callable[[list[int]], torch.Tensor]:
    """[T - 1, F * H] of all tokens but the last, from one step of a core of its own."""

    def features(token_ids: list[int]) -> torch.Tensor:
        core = make_core(feature_layers=LAYERS, deterministic=True, max_batch_tokens=CONTEXT)
        core.submit(OpenSequence(1, tuple(token_ids[:-1]), GREEDY))
        core.submit(Decode(1, len(token_ids) - 1, 1, features=FeatureRequest(0)))
        found = verdicts_of(settle(core))[-1].features
        assert found is not None
        return decode_features(found, width=WIDTH, num_layers=len(LAYERS))

    return features


@pytest.mark.parametrize("kv_cache_tokens", [1024, 160], ids=["roomy", "tight"])
@pytest.mark.parametrize("tree", [None, TreeRequest(max_nodes=12, branching=3)], ids=["chain", "tree"])
@pytest.mark.parametrize("is_right", [True, False], ids=["right", "often wrong"])
def test_features_are_those_of_the_tokens_that_they_are_kept_with(
    make_core: MakeCore,
    greedy_text: GreedyText,
    features_of: Callable[[list[int]], torch.Tensor],
    kv_cache_tokens: int,
    tree: TreeRequest | None,
    is_right: bool,
    drafts_are_free: None,
) -> None:
    def make_drafter(decoder: TransformersDecoder) -> Target | Oracle:
        decoder.capture(LAYERS)
        return Target(decoder) if is_right else Oracle(greedy_text, seed=4)

    core = make_core(make_drafter, deterministic=True, max_draft_tokens=12, kv_cache_tokens=kv_cache_tokens)
    kept: list[LearnedText] = []
    recorder = Recorder(kept.append, lambda values: encode_features(torch.cat(list(values)), 0), max_bytes=1 << 30)
    core.learn(recorder, HeadVersions(lambda: 0, lambda _: lambda: None))
    texts: dict[str, list[int]] = {}
    for turn in range(2):  # the second on prefixes from the cache
        asked = prompts(1, 4)
        for sequence_id, prompt in enumerate(asked):
            texts[f"{turn} {sequence_id}"] = [*prompt]
            core.submit(OpenSequence(sequence_id, tuple(prompt), GREEDY, learn_as=f"{turn} {sequence_id}"))
            core.submit(Decode(sequence_id, len(prompt), 24, 5, tree=tree))
        verdicts = verdicts_of(settle(core))
        for verdict in verdicts:
            texts[f"{turn} {verdict.sequence_id}"].extend(verdict.token_ids)
        for sequence_id in range(len(asked)):
            core.submit(CloseSequence(sequence_id, is_finished=True))
        assert sum(verdict.num_accepted_tokens for verdict in verdicts) > 20
        assert is_right or any(verdict.num_accepted_tokens < verdict.num_draft_tokens for verdict in verdicts)
    core.close()
    assert (core.num_preemptions > 0) == (kv_cache_tokens == 160)
    assert {text.request_id for text in kept} == texts.keys()
    assert any(text.features.first_position for text in kept)
    for text in kept:
        whole, first = texts[text.request_id], text.features.first_position
        assert list(text.token_ids) == whole[first:-1]
        found = decode_features(text.features, width=WIDTH, num_layers=len(LAYERS))
        torch.testing.assert_close(found, features_of(whole)[first:], rtol=0.02, atol=0.02)
