"""Drafters in the target: the text is that of plain decoding, and what they keep stays in step."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
import pytest
import torch
from transformers import LlamaForCausalLM

from pilotfish.engine.core.draft_costs import DraftCosts, Thresholds
from pilotfish.engine.core.draft_wish import DraftWish
from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.engine.core.step_rows import KeptRows
from pilotfish.engine.drafting.eagle3_drafter import Eagle3Drafter
from pilotfish.engine.drafting.early_exit_drafter import EarlyExitDrafter
from pilotfish.engine.drafting.medusa_drafter import MedusaDrafter
from pilotfish.messages import CloseSequence, Decode, OpenSequence, SequenceError, Verdict
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.eagle3.factory import build_eagle3_head
from pilotfish.models.eagle3.module import Eagle3Head
from pilotfish.models.medusa.config import MedusaConfig
from pilotfish.models.medusa.module import MedusaHeads
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.trees.branching import branch
from pilotfish.speculation.trees.growth import GrowingTree
from pilotfish.types import AcceptanceMode, SamplingParams, TreeRequest
from tests.support.engine_events import MakeCore, settle

VOCAB, CONTEXT, HIDDEN = 64, 128, 32
GREEDY = SamplingParams(temperature=0, max_tokens=60)
COUPLED = SamplingParams(temperature=1.0, seed=7, max_tokens=60, frequency_penalty=0.3, repetition_penalty=1.2)
REJECTION = SamplingParams(temperature=0.7, seed=3, max_tokens=60, acceptance=AcceptanceMode.REJECTION)

MakeDrafter = Callable[[TransformersDecoder], InTargetDrafter]


@pytest.fixture
def make_drafted(make_core: MakeCore) -> MakeCore:
    """A core with a drafter beside its decoder; None: without."""
    return partial(make_core, max_draft_tokens=12)


def medusa_heads() -> MedusaHeads:
    torch.manual_seed(5)
    heads = MedusaHeads(MedusaConfig(hidden_size=HIDDEN, vocab_size=VOCAB, num_heads=3, draft_vocab_size=40))
    heads.token_map.copy_(torch.arange(12, 52))
    for parameter in heads.parameters():
        parameter.data.normal_(std=0.5)
    return heads.eval().requires_grad_(False)


@pytest.fixture(params=["eagle3", "medusa", "early_exit", "whole_exit"])
def make_drafter(request: pytest.FixtureRequest, eagle3_module: Eagle3Head) -> MakeDrafter:
    if request.param == "medusa":

        def make_medusa(decoder: TransformersDecoder) -> InTargetDrafter:
            decoder.capture(())
            return MedusaDrafter(decoder, medusa_heads(), top_m=8)

        return make_medusa
    if request.param == "eagle3":

        def make(decoder: TransformersDecoder) -> InTargetDrafter:
            decoder.capture(eagle3_module.config.feature_layers)
            return Eagle3Drafter(decoder, build_eagle3_head(decoder, copy.deepcopy(eagle3_module)), top_m=8)

        return make
    exit_layer = 1 if request.param == "early_exit" else 2
    return lambda decoder: EarlyExitDrafter(decoder, exit_layer, top_m=8)


class Oracle:
    """Drafts what the target will say, with faults; checks what it is shown."""

    name = "oracle"
    num_rounds = 0

    def __init__(self, continue_text: Callable[[Sequence[int], int], list[int]], seed: int) -> None:
        self._continue = continue_text
        self._random = random.Random(seed)
        self.seen: dict[int, int] = {}

    def allocate(self, num_blocks: int) -> int:
        return 100 * num_blocks

    def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
        for rows in kept:
            assert rows.first_position + len(rows.step_rows) == rows.sequence.num_computed_tokens
            assert len(set(rows.step_rows)) == len(rows.step_rows) > 0
        drafts = []
        for wish in wishes.values():
            token_ids = self._continue(wish.sequence.tokens, wish.num_draft_tokens)
            if token_ids and self._random.random() < 0.5:
                token_ids[self._random.randrange(len(token_ids))] = self._random.randrange(VOCAB)
            drafts.append(Drafts(tuple(token_ids)))
        return drafts


def run(
    core: EngineCore,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingParams,
    num_tokens: int,
    num_draft_tokens: int,
    tree: TreeRequest | None = None,
) -> tuple[list[list[int]], list[Verdict]]:
    """The outputs of all prompts, decoded side by side, and every verdict."""
    for sequence_id, prompt in enumerate(prompts):
        core.submit(OpenSequence(sequence_id, tuple(prompt), sampling))
        core.submit(Decode(sequence_id, len(prompt), num_tokens, num_draft_tokens, tree=tree))
    outputs: list[list[int]] = [[] for _ in prompts]
    verdicts = []
    for event in settle(core):
        assert not isinstance(event, SequenceError), event
        if isinstance(event, Verdict):
            assert event.base_length == len(prompts[event.sequence_id]) + len(outputs[event.sequence_id])
            assert event.num_accepted_tokens <= event.depth <= num_draft_tokens
            assert event.num_draft_tokens <= (num_draft_tokens if tree is None else tree.max_nodes)
            outputs[event.sequence_id].extend(event.token_ids)
            verdicts.append(event)
    for sequence_id in range(len(prompts)):
        core.submit(CloseSequence(sequence_id))
    return outputs, verdicts


def prompts(seed: int, count: int) -> list[list[int]]:
    """Some share a prefix of several blocks."""
    chance = random.Random(seed)
    head = [chance.randrange(VOCAB) for _ in range(37)]
    return [
        [*head[: chance.choice((0, 20, 37))], *(chance.randrange(VOCAB) for _ in range(chance.randint(1, 30)))]
        for _ in range(count)
    ]


@pytest.mark.parametrize("sampling", [GREEDY, COUPLED], ids=["greedy", "coupled"])
@pytest.mark.parametrize("kv_cache_tokens", [1024, 160], ids=["roomy", "tight"])
@pytest.mark.parametrize("tree", [None, TreeRequest(max_nodes=12, branching=3)], ids=["chain", "tree"])
def test_the_text_is_that_of_plain_decoding(
    make_drafted: MakeCore,
    make_drafter: MakeDrafter,
    sampling: SamplingParams,
    kv_cache_tokens: int,
    tree: TreeRequest | None,
) -> None:
    texts = prompts(1, 4)
    plain, _ = run(make_drafted(None), texts, sampling, 24, 0)
    core = make_drafted(make_drafter, kv_cache_tokens=kv_cache_tokens)
    drafted, verdicts = run(core, texts, sampling, 24, 5, tree)
    assert drafted == plain
    assert sum(verdict.num_draft_tokens for verdict in verdicts) > 20
    assert any(verdict.draft_depth for verdict in verdicts) == (tree is not None)
    assert (core.num_preemptions > 0) == (kv_cache_tokens == 160)
    again, _ = run(core, texts, sampling, 24, 5, tree)  # on prefixes from the cache
    assert again == plain
    assert core.kv_cache.pool.num_used == 0


def test_a_drafter_that_is_the_target_is_always_right(make_drafted: MakeCore) -> None:
    core = make_drafted(lambda decoder: EarlyExitDrafter(decoder, 2, top_m=VOCAB))
    for sampling in (GREEDY, msgspec.structs.replace(COUPLED, frequency_penalty=1.0), REJECTION):
        _, verdicts = run(core, prompts(2, 3), sampling, 40, 4)
        assert sum(verdict.num_draft_tokens for verdict in verdicts) > 30
        assert all(verdict.num_accepted_tokens == verdict.num_draft_tokens for verdict in verdicts)


def test_rejection_sampling_gets_its_distributions(make_drafted: MakeCore, make_drafter: MakeDrafter) -> None:
    outputs, verdicts = run(make_drafted(make_drafter), prompts(3, 3), REJECTION, 30, 3)
    assert [len(output) for output in outputs] == [30] * 3
    assert sum(verdict.num_draft_tokens for verdict in verdicts) > 20


@pytest.mark.parametrize("num_draft_tokens", [1, 8])
def test_a_run_ends_where_it_was_asked_to(
    make_drafted: MakeCore,
    greedy_text: Callable[[Sequence[int], int], list[int]],
    num_draft_tokens: int,
) -> None:
    core = make_drafted(lambda _: Oracle(greedy_text, 0))
    prompt = [5, 9, 2]
    outputs, verdicts = run(core, [prompt], GREEDY, 11, num_draft_tokens)
    assert outputs == [greedy_text(prompt, 11)]
    assert any(verdict.num_accepted_tokens for verdict in verdicts)
    outputs, _ = run(core, [prompt], msgspec.structs.replace(GREEDY, max_tokens=7), 40, num_draft_tokens)
    assert outputs == [greedy_text(prompt, 7)]
    long = prompts(4, 1)[0] * 4
    long = long[: CONTEXT - 6]
    outputs, verdicts = run(core, [long], msgspec.structs.replace(GREEDY, max_tokens=100), 100, num_draft_tokens)
    assert [len(output) for output in outputs] == [CONTEXT - len(long)]


@pytest.mark.parametrize("seed", range(6))
def test_what_the_drafter_is_shown_adds_up(
    make_drafted: MakeCore, greedy_text: Callable[[Sequence[int], int], list[int]], seed: int
) -> None:
    chance = random.Random(seed)
    core = make_drafted(
        lambda _: Oracle(greedy_text, seed),
        kv_cache_tokens=chance.choice((160, 1024)),
        max_batch_tokens=chance.choice((13, 20, 48)),
    )
    texts = prompts(seed, 4)
    outputs, verdicts = run(core, texts, GREEDY, 20, 4)
    assert outputs == [greedy_text(text, 20) for text in texts]
    assert any(verdict.num_accepted_tokens > 1 for verdict in verdicts)
    assert any(verdict.num_accepted_tokens < verdict.num_draft_tokens for verdict in verdicts)


def test_nobody_drafts_unasked_or_without_a_drafter(make_drafted: MakeCore, make_drafter: MakeDrafter) -> None:
    for drafter, num_draft_tokens in ((make_drafter, 0), (None, 4)):
        _, verdicts = run(make_drafted(drafter), [[5, 9, 2]], GREEDY, 20, num_draft_tokens)
        assert [verdict.num_draft_tokens for verdict in verdicts] == [0] * 20


def test_a_drafter_that_fails_costs_nobody_anything(
    make_drafted: MakeCore,
    greedy_text: Callable[[Sequence[int], int], list[int]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Faulty(Oracle):
        def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
            if kept[0].sequence.num_output_tokens > 3:
                raise RuntimeError("out of ideas")
            return super().follow(kept, wishes)

    core = make_drafted(lambda _: Faulty(greedy_text, 0))
    outputs, verdicts = run(core, [[5, 9, 2]], GREEDY, 20, 2)
    assert outputs == [greedy_text([5, 9, 2], 20)]
    assert verdicts[0].num_draft_tokens == 0
    assert verdicts[1].num_draft_tokens == 2
    assert verdicts[-1].num_draft_tokens == 0
    assert "out of ideas" in caplog.text


class Reference:
    """EAGLE-3 drafting of a whole text at once, by the module itself."""

    def __init__(self, target: LlamaForCausalLM, module: Eagle3Head) -> None:
        self._target, self._module = target, module

    def draft(self, tokens: Sequence[int], num_tokens: int) -> list[int]:
        """The greedy chain."""
        drafts: list[int] = []
        for _ in range(num_tokens):
            drafts.append(int(self.logits(tokens, drafts).argmax()))
        return drafts

    def grow(self, tokens: Sequence[int], depth: int, request: TreeRequest) -> Drafts:
        """The greedy tree."""
        growing = GrowingTree(request.branching)
        for _ in range(depth):
            logits = torch.stack([self.logits(tokens, growing.path(node)) for node in growing.frontier])
            growing.extend(branch(logits, [Row(GREEDY, 0, None)] * len(logits), request.branching))
        grown = growing.finish(request.max_nodes)
        return Drafts(grown.token_ids, (), None if grown.tree.is_chain else grown.tree)

    def logits(self, tokens: Sequence[int], drafts: Sequence[int]) -> torch.Tensor:
        """[V] after the tokens and drafts, which the head has read with its own states."""
        module = self._module
        states = self._target(torch.tensor([list(tokens)]), output_hidden_states=True, use_cache=False).hidden_states
        features = torch.cat([states[layer][0] for layer in module.config.feature_layers], dim=-1)
        hidden = module.fuse(features[:-1])
        for length in range(len(tokens), len(tokens) + len(drafts) + 1):
            text = [*tokens, *drafts][:length]
            embeddings = self._target.get_input_embeddings()(torch.tensor(text[1:]))
            output, logits = module(embeddings, hidden, torch.arange(1, length))
            hidden = torch.cat((hidden, output[-1:]))
        spread = torch.full((VOCAB,), -torch.inf)
        spread[module.target_token_ids] = logits[-1]
        return spread


@pytest.mark.parametrize("tree", [None, TreeRequest(max_nodes=10, branching=3)], ids=["chain", "tree"])
@pytest.mark.parametrize("seed", range(4))
def test_the_head_sees_what_it_would_see_in_one_piece(
    make_drafted: MakeCore,
    tiny_llama: LlamaForCausalLM,
    eagle3_module: Eagle3Head,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    tree: TreeRequest | None,
) -> None:
    """Chunked prefills, rejected drafts, plain stretches, prefixes from the cache."""
    monkeypatch.setattr(DraftCosts, "thresholds", lambda _: Thresholds(0.0, 0.0))
    chance = random.Random(seed)

    def make(decoder: TransformersDecoder) -> InTargetDrafter:
        decoder.capture(eagle3_module.config.feature_layers)
        return Eagle3Drafter(decoder, build_eagle3_head(decoder, copy.deepcopy(eagle3_module)), top_m=8)

    core = make_drafted(make, kv_cache_tokens=chance.choice((160, 1024)), max_batch_tokens=chance.choice((13, 20, 48)))
    reference = Reference(tiny_llama, eagle3_module)
    num_checked = 0
    for turn, text in itertools.product(range(2), prompts(seed, 4)):
        core.submit(OpenSequence(turn, tuple(text), GREEDY))
        for _ in range(3):  # stretches with and without drafts
            sequence = core._sequences[turn]
            goal = len(sequence.tokens) + chance.randint(2, 9)
            core.submit(
                Decode(turn, len(sequence.tokens), goal - len(sequence.tokens), chance.choice((0, 3)), tree=tree)
            )
            while core.has_work:
                core.step()
                drafts = sequence.drafts
                if drafts and tree is None:
                    assert list(drafts.token_ids) == reference.draft(sequence.tokens, len(drafts))
                elif drafts and tree is not None:
                    depth = min(3, goal - len(sequence.tokens) - 1)
                    assert drafts == reference.grow(sequence.tokens, depth, tree)
                num_checked += bool(drafts)
        core.submit(CloseSequence(turn))
    assert num_checked > 10


def test_medusa_heads_guess_from_the_last_kept_row(
    make_drafted: MakeCore, tiny_llama: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DraftCosts, "thresholds", lambda _: Thresholds(0.0, 0.0))
    heads = medusa_heads()

    def make(decoder: TransformersDecoder) -> InTargetDrafter:
        decoder.capture(())
        return MedusaDrafter(decoder, medusa_heads(), top_m=8)

    core = make_drafted(make)
    num_checked = 0
    for sequence_id, text in enumerate(prompts(8, 3)):
        core.submit(OpenSequence(sequence_id, tuple(text), GREEDY))
        core.submit(Decode(sequence_id, len(text), 12, 8))
    while core.has_work:
        core.step()
        for sequence in core._sequences.values():
            if drafts := sequence.drafts.token_ids:
                states = tiny_llama.model(torch.tensor([sequence.tokens[:-1]])).last_hidden_state[0, -1:]
                expected = [int(heads.token_map[logits[0].argmax()]) for logits in heads(states)]
                assert list(drafts) == expected[: len(drafts)]
                num_checked += 1
    assert num_checked > 10
