"""A target whose first layers draft for it: its text stays its own, and what is drafted is what the exit says."""

from collections.abc import Sequence
from functools import partial

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pilotfish.drafters.early_exit.config import ExitConfig
from pilotfish.drafters.early_exit.draft import build_exit
from pilotfish.drafters.early_exit.in_target import EarlyExitDrafter
from pilotfish.drafters.early_exit.module import ExitHead
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.messages import Decode, OpenSequence
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.types import AcceptanceMode, SamplingParams, TreeRequest
from tests.support.engine_events import MakeCore, decode, prompts
from tests.support.tiny_llama import tiny_llama as make_tiny_llama

VOCAB, CONTEXT, EXIT_LAYER = 64, 128, 2
DRAFT_TOKENS = torch.arange(8, 60)
GREEDY = SamplingParams(temperature=0, max_tokens=60)
COUPLED = SamplingParams(temperature=1.0, seed=7, max_tokens=60, frequency_penalty=0.3, repetition_penalty=1.2)
REJECTION = SamplingParams(temperature=0.7, seed=3, max_tokens=60, acceptance=AcceptanceMode.REJECTION)
TREE = TreeRequest(max_nodes=12, branching=3)


@pytest.fixture(scope="module")
def tiny_llama() -> LlamaForCausalLM:
    """As LayerSkip trains one: the layers behind the exit add little."""
    model = make_tiny_llama(vocab_size=VOCAB, max_position_embeddings=CONTEXT, num_hidden_layers=EXIT_LAYER + 2)
    for layer in model.model.layers[EXIT_LAYER:]:
        layer.self_attn.o_proj.weight.mul_(0.15)
        layer.mlp.down_proj.weight.mul_(0.15)
    return model


@pytest.fixture(scope="module")
def head(tiny_llama: LlamaForCausalLM) -> ExitHead:
    """A block that stands in for the layers behind the exit, about."""
    config = ExitConfig(hidden_size=32, vocab_size=VOCAB, draft_vocab_size=len(DRAFT_TOKENS), exit_layer=EXIT_LAYER)
    head = ExitHead(config, tiny_llama).requires_grad_(False)
    head.block.load_state_dict(tiny_llama.model.layers[-1].state_dict())
    head.lm_head.weight.copy_(tiny_llama.lm_head.weight[DRAFT_TOKENS])
    head.token_map.copy_(DRAFT_TOKENS)
    return head


@pytest.fixture(params=["bare", "trained"])
def make_drafted(request: pytest.FixtureRequest, make_core: MakeCore, head: ExitHead) -> MakeCore:
    def make(decoder: TransformersDecoder) -> EarlyExitDrafter:
        if request.param == "bare":
            return EarlyExitDrafter(decoder, build_exit(decoder, EXIT_LAYER, None), top_m=8)
        own = ExitHead(head.config, decoder.model)  # with the decoder's attention
        own.load_state_dict(head.state_dict())
        decoder.capture((EXIT_LAYER,))
        return EarlyExitDrafter(decoder, build_exit(decoder, EXIT_LAYER, own), top_m=8)

    return partial(make_core, make, max_draft_tokens=12)


@pytest.fixture
def exit_model(request: pytest.FixtureRequest, tiny_llama: LlamaForCausalLM, head: ExitHead) -> LlamaForCausalLM:
    """A model of its own that says what the exit says."""
    is_bare = request.node.callspec.params["make_drafted"] == "bare"
    config = {**tiny_llama.config.to_dict(), "num_hidden_layers": EXIT_LAYER + (not is_bare)}
    model = LlamaForCausalLM(LlamaConfig(**config)).eval().requires_grad_(False)
    model.load_state_dict(tiny_llama.state_dict(), strict=False)
    if not is_bare:
        model.model.layers[EXIT_LAYER].load_state_dict(head.block.state_dict())
        unknown = torch.ones(VOCAB, dtype=torch.bool)
        unknown[DRAFT_TOKENS] = False
        model.lm_head.register_forward_hook(lambda _, __, logits: logits.masked_fill(unknown, -torch.inf))
    return model


@pytest.mark.usefixtures("drafts_are_free")
@pytest.mark.parametrize("kv_cache_tokens", [1024, 160], ids=["roomy", "tight"])
@pytest.mark.parametrize(
    ("sampling", "tree"),
    [(GREEDY, None), (GREEDY, TREE), (COUPLED, None), (COUPLED, TREE)],
    ids=["greedy-chain", "greedy-tree", "coupled-chain", "coupled-tree"],
)
def test_the_text_is_that_of_plain_decoding(
    make_core: MakeCore,
    make_drafted: MakeCore,
    sampling: SamplingParams,
    tree: TreeRequest | None,
    kv_cache_tokens: int,
) -> None:
    texts = prompts(1, 4)
    plain, _ = decode(make_core(), texts, sampling, 24, 0)
    core = make_drafted(kv_cache_tokens=kv_cache_tokens)
    drafted, verdicts = decode(core, texts, sampling, 24, 5, tree)
    assert drafted == plain
    assert sum(verdict.num_accepted_tokens for verdict in verdicts) > 20
    assert any(verdict.num_accepted_tokens < verdict.depth for verdict in verdicts)
    assert (core.num_preemptions > 0) == (kv_cache_tokens == 160)
    again, verdicts = decode(core, texts, sampling, 24, 5, tree)  # on prefixes from the cache
    assert again == plain
    assert sum(verdict.num_accepted_tokens for verdict in verdicts) > 20
    assert core.kv_cache.pool.num_used == 0


@pytest.mark.usefixtures("drafts_are_free")
def test_rejection_sampling_gets_its_distributions(make_drafted: MakeCore) -> None:
    outputs, verdicts = decode(make_drafted(), prompts(3, 3), REJECTION, 30, 3)
    assert [len(output) for output in outputs] == [30] * 3
    assert sum(verdict.num_accepted_tokens for verdict in verdicts) > 20


@pytest.mark.usefixtures("drafts_are_free")
def test_where_nothing_follows_the_exit_every_draft_is_accepted(make_core: MakeCore) -> None:
    """By each rule: draws and their distributions are the target's own."""

    def make(decoder: TransformersDecoder) -> EarlyExitDrafter:
        for layer in decoder.model.model.layers[EXIT_LAYER:]:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        return EarlyExitDrafter(decoder, build_exit(decoder, EXIT_LAYER, None), top_m=VOCAB)

    core = make_core(make, max_draft_tokens=12)
    for sampling in (GREEDY, COUPLED, REJECTION):
        _, verdicts = decode(core, prompts(2, 3), sampling, 24, 4)
        assert sum(verdict.num_draft_tokens for verdict in verdicts) > 30
        assert all(verdict.num_accepted_tokens == verdict.num_draft_tokens for verdict in verdicts)


@pytest.mark.usefixtures("drafts_are_free")
@pytest.mark.parametrize("tree", [None, TREE], ids=["chains", "trees"])
@pytest.mark.parametrize("kv_cache_tokens", [1024, 160], ids=["roomy", "tight"])
def test_drafts_are_what_the_exit_says(
    make_drafted: MakeCore, exit_model: LlamaForCausalLM, tree: TreeRequest | None, kv_cache_tokens: int
) -> None:
    """After prefixes from the cache and preemptions as well: what the block keeps stays in step."""
    core = make_drafted(kv_cache_tokens=kv_cache_tokens)
    texts = prompts(8, 4)
    decode(core, texts, GREEDY, 30, 2)
    assert check_drafts(core, exit_model, texts, tree) > 40


def check_drafts(
    core: EngineCore, exit_model: LlamaForCausalLM, texts: Sequence[Sequence[int]], tree: TreeRequest | None
) -> int:
    """Decode texts, and compare all drafts with a forward over the whole text; how many there were."""
    for sequence_id, text in enumerate(texts):
        core.submit(OpenSequence(sequence_id, tuple(text), GREEDY))
        core.submit(Decode(sequence_id, len(text), 30, 4, tree=tree))
    num_checked = 0
    while core.has_work:
        core.step()
        for sequence in core._sequences.values():
            paths: list[list[int]] = []
            drafts = sequence.drafts
            for token_id, parent in zip(drafts.token_ids, drafts.shape.parents, strict=True):
                before = [*sequence.tokens, *(paths[parent] if parent >= 0 else [])]
                paths.append([*(paths[parent] if parent >= 0 else []), token_id])
                logits = exit_model(torch.tensor([before])).logits[0, -1]
                assert token_id in logits.topk(tree.branching if tree else 1).indices
                num_checked += 1
    return num_checked
