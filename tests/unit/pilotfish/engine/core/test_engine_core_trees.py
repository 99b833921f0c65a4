"""Draft trees in the engine, against plain decoding of the same requests."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.messages import Decode, OpenSequence, SequenceError, Verdict, Verify
from pilotfish.types import AcceptanceMode, FinishReason, SamplingParams, SparseDistribution, TokenOrigin
from tests.support.engine_events import MakeCore, settle, verdicts_of

VOCAB = 64


def plain_text(core: EngineCore, prompt: Sequence[int], sampling: SamplingParams) -> list[int]:
    core.submit(OpenSequence(1, tuple(prompt), sampling))
    core.submit(Decode(1, len(prompt), sampling.max_tokens))
    return [token_id for verdict in verdicts_of(settle(core)) for token_id in verdict.token_ids]


class TreeDrafts:
    """Random trees, some of whose paths follow a known text."""

    def __init__(self, seed: int, max_nodes: int = 8) -> None:
        self._random = random.Random(seed)
        self._max_nodes = max_nodes

    def draft(self, expected: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Token ids and parents; expected: what the target will say."""
        parents: list[int] = []
        token_ids: list[int] = []
        depths: list[int] = []  # of nodes on the expected path; 0 elsewhere
        for node in range(self._random.randint(1, self._max_nodes)):
            parent = self._random.randint(max(-1, node - 4), node - 1)
            on_path = 0 if parent < 0 else depths[parent]
            follows = (parent < 0 or on_path > 0) and on_path < len(expected) and self._random.random() < 0.6
            parents.append(parent)
            token_ids.append(expected[on_path] if follows else self._random.randrange(VOCAB))
            depths.append(on_path + 1 if follows else 0)
        return tuple(token_ids), tuple(parents)


def text_by_trees(
    core: EngineCore,
    prompts: dict[int, Sequence[int]],
    expected: dict[int, list[int]],
    samplings: dict[int, SamplingParams],
    seed: int,
) -> tuple[dict[int, list[int]], list[Verdict]]:
    """All prompts at once, verified tree by tree until each ends; the verdicts of all."""
    drafts, verdicts = TreeDrafts(seed), []
    texts: dict[int, list[int]] = {sequence_id: [] for sequence_id in prompts}
    for sequence_id, prompt in prompts.items():
        core.submit(OpenSequence(sequence_id, tuple(prompt), samplings[sequence_id]))
    open_ids = set(prompts)
    while open_ids:
        for sequence_id in open_ids:
            text = texts[sequence_id]
            token_ids, parents = drafts.draft(expected[sequence_id][len(text) :])
            is_rejection = samplings[sequence_id].acceptance is AcceptanceMode.REJECTION
            probs = tuple(SparseDistribution((token_id,), (1.0,)) for token_id in token_ids) if is_rejection else ()
            core.submit(Verify(sequence_id, len(prompts[sequence_id]) + len(text), token_ids, probs, parents))
        for event in settle(core):
            assert not isinstance(event, SequenceError), event
            if isinstance(event, Verdict):
                verdicts.append(event)
                texts[event.sequence_id].extend(event.token_ids)
                if event.finish_reason is not None:
                    open_ids.discard(event.sequence_id)
    return texts, verdicts


SAMPLINGS = {
    "greedy": {"temperature": 0.0},
    "greedy with penalties": {"temperature": 0.0, "repetition_penalty": 1.3, "frequency_penalty": 0.5},
    "coupled": {"temperature": 0.9, "top_p": 0.95},
    "coupled with penalties": {"temperature": 1.1, "presence_penalty": 0.8, "repetition_penalty": 1.2},
}


@pytest.mark.parametrize("kind", SAMPLINGS)
def test_trees_give_the_text_of_plain_decoding(make_core: MakeCore, kind: str) -> None:
    sampling = SamplingParams(max_tokens=40, seed=5, **SAMPLINGS[kind])
    prompt = [7, 3, 11, 40, 2] * 4
    expected = plain_text(make_core(), prompt, sampling)
    for seed in range(2):
        texts, verdicts = text_by_trees(make_core(max_draft_tokens=8), {1: prompt}, {1: expected}, {1: sampling}, seed)
        assert texts[1] == expected
        assert sum(verdict.num_accepted_tokens for verdict in verdicts) > 5
        assert any(verdict.num_accepted_tokens > 1 for verdict in verdicts)


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), kv_cache_tokens=st.sampled_from((112, 160, 512)), batch=st.sampled_from((12, 40)))
def test_many_sequences_in_a_tight_cache(make_core: MakeCore, seed: int, kv_cache_tokens: int, batch: int) -> None:
    """Shared prefixes, preemption and chunked prefills beside trees."""
    generator = random.Random(seed)
    shared = [generator.randrange(VOCAB) for _ in range(34)]
    prompts = {
        sequence_id: [*shared[: generator.choice((3, 16, 32, 34))], generator.randrange(VOCAB)]
        for sequence_id in range(1, 5)
    }
    kinds = list(SAMPLINGS.values())
    samplings = {
        sequence_id: SamplingParams(max_tokens=generator.randint(3, 20), seed=sequence_id, **generator.choice(kinds))
        for sequence_id in prompts
    }
    expected = {
        sequence_id: plain_text(make_core(), prompt, samplings[sequence_id]) for sequence_id, prompt in prompts.items()
    }
    core = make_core(kv_cache_tokens=kv_cache_tokens, max_batch_tokens=batch)
    texts, _ = text_by_trees(core, prompts, expected, samplings, seed)
    assert texts == expected
    # What lies in the prefix cache now was moved into place before it was shared.
    again, _ = text_by_trees(core, prompts, expected, samplings, seed + 1)
    assert again == expected
    assert core.kv_cache.pool.num_used == 0


def test_prefixes_that_trees_have_filled_are_shared(make_core: MakeCore) -> None:
    """A second request whose prompt is the first one's text hits blocks that were compacted."""
    sampling = SamplingParams(temperature=0, max_tokens=40)
    prompt = [9, 8, 7]
    expected = plain_text(make_core(), prompt, sampling)
    core = make_core()
    text_by_trees(core, {1: prompt}, {1: expected}, {1: sampling}, seed=4)
    longer = [*prompt, *expected[:36]]
    core.submit(OpenSequence(2, tuple(longer), SamplingParams(temperature=0, max_tokens=4)))
    core.submit(Decode(2, len(longer), 4))
    events = settle(core)
    assert [t for verdict in verdicts_of(events, 2) for t in verdict.token_ids] == expected[36:]
    assert events[0].num_cached_tokens == 32


@pytest.fixture
def opened(make_core: MakeCore) -> tuple[EngineCore, list[int]]:
    """A core with sequence 1 open, and what it says greedily."""
    prompt = [4, 9, 33]
    expected = plain_text(make_core(), prompt, SamplingParams(temperature=0, max_tokens=8))
    core = make_core()
    core.submit(OpenSequence(1, tuple(prompt), SamplingParams(temperature=0, max_tokens=8)))
    return core, expected


def other(token_id: int) -> int:
    return (token_id + 1) % VOCAB


def test_origins_depths_and_counts(opened: tuple[EngineCore, list[int]]) -> None:
    core, text = opened
    drafts = (other(text[0]), text[0], other(text[1]), text[1])
    core.submit(Verify(1, 3, drafts, (), (-1, -1, 1, 1)))
    (verdict,) = verdicts_of(settle(core))
    assert verdict.token_ids == tuple(text[:3])
    assert (verdict.num_draft_tokens, verdict.num_accepted_tokens, verdict.depth) == (4, 2, 2)
    assert verdict.origins == (TokenOrigin.ACCEPTED, TokenOrigin.ACCEPTED, TokenOrigin.BONUS)
    drafts = (text[3], other(text[3]), other(text[4]), 5)
    core.submit(Verify(1, 6, drafts, (), (-1, -1, 0, 2)))
    (verdict,) = verdicts_of(settle(core))
    assert verdict.token_ids == tuple(text[3:5])
    assert (verdict.num_accepted_tokens, verdict.depth) == (1, 3)
    assert verdict.origins == (TokenOrigin.ACCEPTED, TokenOrigin.RECOVERED)


@pytest.mark.parametrize(
    ("num_decoded", "nodes", "parents", "num_drafts", "num_accepted", "num_tokens"),
    [
        (0, (0, "wrong", "wrong"), (-1, -1, 1), 3, 1, 2),  # an accepted leaf beside a longer branch has a bonus
        # 8 tokens are left, the last of them the target's own: nodes deeper than 7 could never be used.
        (0, (0, 1, 2, 3, 4, 5, 6, "wrong"), (-1, 0, 1, 2, 3, 4, 5, -1), 8, 7, 8),
        (6, ("wrong", 6, "wrong", "wrong", "wrong"), (-1, -1, 0, 1, 3), 2, 1, 2),
    ],
    ids=["a leaf", "to the end", "past the end"],
)
def test_a_tree_is_verified_as_far_as_it_can_be_used(
    opened: tuple[EngineCore, list[int]],
    num_decoded: int,
    nodes: tuple[int | str, ...],
    parents: tuple[int, ...],
    num_drafts: int,
    num_accepted: int,
    num_tokens: int,
) -> None:
    """nodes: right tokens by their place in the text, and wrong ones."""
    core, text = opened
    if num_decoded:
        core.submit(Decode(1, 3, num_decoded))
        settle(core)
    wrong = other(text[num_decoded])
    drafts = tuple(text[node] if isinstance(node, int) else wrong for node in nodes)
    core.submit(Verify(1, 3 + num_decoded, drafts, (), parents))
    (verdict,) = verdicts_of(settle(core))
    assert verdict.token_ids == tuple(text[num_decoded : num_decoded + num_tokens])
    assert (verdict.num_draft_tokens, verdict.num_accepted_tokens) == (num_drafts, num_accepted)
    assert (verdict.finish_reason is FinishReason.LENGTH) == (num_decoded + num_tokens == 8)
