"""Trees drafted by an engine, against trees grown from transformers' own forwards of every path."""

import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from pilotfish.messages import Decode, Event, OpenSequence, Proposal, Propose, Verdict, Verify
from pilotfish.speculation.trees.growth import Candidate, GrowingTree
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import AcceptanceMode, SamplingParams, TreeRequest
from tests.support.engine_events import MakeCore, settle

VOCAB = 64
GREEDY = SamplingParams(temperature=0, max_tokens=100)


def expected_tree(
    model: LlamaForCausalLM, text: Sequence[int], depth: int, request: TreeRequest
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Greedy: token ids and parents, one forward over the whole text for each node."""
    growing = GrowingTree(request.branching, request.row_price)
    while growing.num_levels < min(depth, request.max_nodes) and growing.frontier:
        level = []
        for node in growing.frontier:
            log_probs = model(torch.tensor([[*text, *growing.path(node)]])).logits[0, -1].log_softmax(-1)
            values, token_ids = log_probs.topk(request.branching)
            level.append([Candidate(t, v) for t, v in zip(token_ids.tolist(), values.tolist(), strict=True)])
        growing.extend(level)
    grown = growing.finish(request.max_nodes)
    return grown.token_ids, () if grown.tree.is_chain else grown.tree.parents


def the_proposal(events: Sequence[Event], sequence_id: int = 1) -> Proposal:
    (proposal,) = [e for e in events if isinstance(e, Proposal) and e.sequence_id == sequence_id]
    return proposal


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize(
    "request_",
    [TreeRequest(8, 3), TreeRequest(3, 2), TreeRequest(8, 1), TreeRequest(8, 3, 0.01), TreeRequest(8, 3, 0.9)],
    ids=str,
)
def test_the_tree_is_the_likeliest_one(
    make_core: MakeCore, tiny_llama: LlamaForCausalLM, depth: int, request_: TreeRequest
) -> None:
    core, text = make_core(), [5, 9, 33, 2]
    core.submit(OpenSequence(1, tuple(text), GREEDY))
    core.submit(Propose(1, 4, (), depth, tree=request_))
    proposal = the_proposal(settle(core))
    assert (proposal.draft_token_ids, proposal.parents) == expected_tree(tiny_llama, text, depth, request_)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), kv_cache_tokens=st.sampled_from((96, 160, 512)))
def test_any_text_before_and_any_neighbours(
    make_core: MakeCore, tiny_llama: LlamaForCausalLM, seed: int, kv_cache_tokens: int
) -> None:
    """Texts that go on from a tree or from elsewhere, beside chains, in a cache that preempts."""
    generator = random.Random(seed)
    core = make_core(kv_cache_tokens=kv_cache_tokens, max_batch_tokens=generator.choice((9, 20, 48)))
    texts = {i: [generator.randrange(VOCAB) for _ in range(generator.choice((2, 15, 16, 30)))] for i in range(1, 4)}
    for sequence_id, text in texts.items():
        core.submit(OpenSequence(sequence_id, tuple(text), GREEDY))
    news: dict[int, tuple[int, ...]] = dict.fromkeys(texts, ())
    for _ in range(4):
        request = TreeRequest(generator.randint(1, 8), generator.randint(1, 3))
        depth = generator.randint(1, 4)
        for sequence_id, text in texts.items():
            text.extend(news[sequence_id])
            tree = None if generator.random() < 0.3 else request
            core.submit(Propose(sequence_id, len(text), news[sequence_id], depth, tree=tree))
            request_of = TreeRequest(depth, 1) if tree is None else tree
            news[sequence_id] = ()
            expected = expected_tree(tiny_llama, text, depth, request_of)
            if generator.random() < 0.3:
                settle(core)  # by itself; its proposal is asked for again below
                core.submit(Propose(sequence_id, len(text), (), depth, tree=tree))
            proposal = the_proposal(settle(core), sequence_id)
            assert (proposal.draft_token_ids, proposal.parents) == expected
            path = DraftTree(proposal.parents or DraftTree.chain(len(expected[0])).parents).paths[-1]
            accepted = [expected[0][node] for node in path][: generator.randint(0, 3)]
            news[sequence_id] = (*accepted, generator.randrange(VOCAB))


@pytest.mark.parametrize("mode", [None, *AcceptanceMode])
def test_a_drafter_like_the_target_is_accepted_to_a_leaf(make_core: MakeCore, mode: AcceptanceMode | None) -> None:
    sampling = GREEDY if mode is None else SamplingParams(acceptance=mode, temperature=0.3, repetition_penalty=1.2)
    prompt = (8, 1, 40)
    core = make_core()
    core.submit(OpenSequence(1, prompt, sampling))
    core.submit(Decode(1, 3, 12))
    plain = [t for event in settle(core) if isinstance(event, Verdict) for t in event.token_ids]
    drafter, target = make_core(), make_core()
    for engine in (drafter, target):
        engine.submit(OpenSequence(1, prompt, sampling))
    text: list[int] = []
    known, num_accepted = 3, 0
    while len(text) < 12:
        base = 3 + len(text)
        drafter.submit(Propose(1, base, tuple(text[known - 3 :]), 3, tree=TreeRequest(8, 3)))
        known = base
        proposal = the_proposal(settle(drafter))
        assert len(proposal.draft_probs) == (8 if mode is AcceptanceMode.REJECTION else 0)
        target.submit(Verify(1, base, proposal.draft_token_ids, proposal.draft_probs, proposal.parents))
        (verdict,) = [event for event in settle(target) if isinstance(event, Verdict)]
        text.extend(verdict.token_ids)
        num_accepted += verdict.num_accepted_tokens
    assert num_accepted >= 6
    if mode is not AcceptanceMode.REJECTION:
        assert text[:12] == plain
