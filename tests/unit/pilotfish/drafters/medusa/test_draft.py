"""Medusa heads guess from the target's last hidden state, beside it and apart from it."""

import copy
import json
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from pilotfish.config import EngineConfig, InTargetDrafterConfig
from pilotfish.drafters.medusa.checkpoint import save_medusa
from pilotfish.drafters.medusa.config import MedusaConfig
from pilotfish.drafters.medusa.draft import build_in_target, build_standalone
from pilotfish.drafters.medusa.head import MedusaHead
from pilotfish.drafters.medusa.in_target import MedusaDrafter
from pilotfish.drafters.medusa.module import MedusaHeads
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.feature_store import FeatureStore
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.engine.drafting.head_core import HeadCore
from pilotfish.errors import ModelError
from pilotfish.messages import Decode, OpenSequence, PredraftRequest
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.loading import LoadedModel
from pilotfish.types import AcceptanceMode, SamplingParams, TreeRequest
from tests.support.engine_events import MakeCore, prompts, ticking_clock
from tests.support.head_rounds import CONTEXT, PROMPTS, Rounds, engine_config, info
from tests.support.tiny_models import greedy_text

GREEDY = SamplingParams(temperature=0, max_tokens=24)
COUPLED = SamplingParams(temperature=1.0, seed=7, max_tokens=24, frequency_penalty=0.3)
REJECTION = SamplingParams(temperature=0.7, seed=3, max_tokens=24, acceptance=AcceptanceMode.REJECTION)


@pytest.fixture
def make_drafted(make_core: MakeCore, medusa_heads: MedusaHeads) -> MakeCore:
    def make(decoder: TransformersDecoder) -> InTargetDrafter:
        head = MedusaHead(copy.deepcopy(medusa_heads), (2,))
        decoder.capture(head.feature_layers)
        return MedusaDrafter(decoder, head, top_m=8)

    return partial(make_core, make, max_draft_tokens=12)


def guesses(heads: MedusaHeads, model: LlamaForCausalLM, tokens: list[int]) -> list[int]:
    """What follows the tokens: the last one is the target's own, and its state is not known yet."""
    state = model.model(torch.tensor([tokens[:-1]])).last_hidden_state[0, -1:]
    return [int(heads.token_map[heads.logits(k, state).argmax()]) for k in range(heads.config.num_heads)]


@pytest.mark.usefixtures("drafts_are_free")
def test_they_guess_from_the_last_kept_row(
    make_drafted: MakeCore, tiny_llama: LlamaForCausalLM, medusa_heads: MedusaHeads
) -> None:
    core = make_drafted()
    num_checked = 0
    for sequence_id, text in enumerate(prompts(8, 3)):
        core.submit(OpenSequence(sequence_id, tuple(text), GREEDY))
        core.submit(Decode(sequence_id, len(text), 12, 8))
    while core.has_work:
        core.step()
        for sequence in core._sequences.values():
            if drafts := sequence.drafts.token_ids:
                expected = guesses(medusa_heads, tiny_llama, list(sequence.tokens))
                assert list(drafts) == expected[: len(drafts)]
                num_checked += 1
    assert num_checked > 10


@pytest.mark.parametrize(
    ("sampling", "tree"),
    [(GREEDY, None), (GREEDY, TreeRequest(8, 3)), (COUPLED, None), (REJECTION, None)],
    ids=["greedy-chains", "greedy-trees", "coupled-chains", "rejection-chains"],
)
def test_apart_from_the_target_they_guess_the_same(
    tiny_llama: LlamaForCausalLM, medusa_heads: MedusaHeads, sampling: SamplingParams, tree: TreeRequest | None
) -> None:
    layers = (tiny_llama.config.num_hidden_layers,)
    decoder = TransformersDecoder(copy.deepcopy(tiny_llama), deterministic=True, max_context_tokens=CONTEXT)
    target = EngineCore(decoder, engine_config(), info(), features=FeatureStore(decoder, layers))
    model = info(proposer="medusa", feature_layers=layers)
    head = MedusaHead(copy.deepcopy(medusa_heads), layers)
    forward, num_rows = head.forward, list[int]()
    head.forward = lambda step: num_rows.append(len(step.token_ids)) or forward(step)  # type: ignore[method-assign, func-returns-value]
    apart = HeadCore(head, engine_config(), model, top_m=8, clock_ns=ticking_clock())
    rounds = Rounds(target, apart, sampling, tree)
    rounds.ahead = PredraftRequest(8, (0.5,))  # they draft nothing ahead
    rounds.start(PROMPTS)
    while rounds.running:
        rounds.play()
    assert len(rounds.proposals) > 20
    assert max(num_rows) <= len(PROMPTS) * (tree.branching if tree else 1), "the rows of prompts are not read"
    if sampling is not GREEDY:
        return
    for number, prompt in enumerate(PROMPTS):
        assert rounds.texts[number] == list(prompt) + greedy_text(tiny_llama, prompt, 24)
    deepest = 0
    for (number, length), answer in rounds.proposals.items():
        # Features travel as bfloat16.
        state = tiny_llama.model(torch.tensor([rounds.texts[number][: length - 1]])).last_hidden_state[0, -1:]
        parents = answer.parents or range(-1, len(answer.draft_token_ids) - 1)
        depths = list[int]()
        for token_id, parent in zip(answer.draft_token_ids, parents, strict=True):
            depths.append(0 if parent < 0 else depths[parent] + 1)
            logits = medusa_heads.logits(depths[-1], state.bfloat16().float())[0]
            likeliest = medusa_heads.token_map[logits.topk(tree.branching if tree else 1).indices]
            assert token_id in likeliest.tolist()
        deepest = max(deepest, *depths)
    assert deepest >= 2


def test_heads_of_another_target_are_refused(tiny_llama: LlamaForCausalLM, tmp_path: Path) -> None:
    save_medusa(MedusaHeads(MedusaConfig(hidden_size=48, vocab_size=64, num_heads=2, draft_vocab_size=64)), tmp_path)
    loaded = LoadedModel(tiny_llama, tmp_path, "tiny", 64, CONTEXT, "the target's")
    decoder = TransformersDecoder(copy.deepcopy(tiny_llama), deterministic=True, max_context_tokens=CONTEXT)
    with pytest.raises(ModelError, match="hidden size is 48, the target's 32"):
        build_in_target(InTargetDrafterConfig(proposer="medusa", model=str(tmp_path)), loaded, decoder, top_m=8)


def test_a_folder_becomes_a_head_apart(medusa_heads: MedusaHeads, write_tiny_model, tmp_path: Path) -> None:
    save_medusa(medusa_heads, tmp_path / "heads")
    target = tmp_path / "target"
    target.mkdir()
    write_tiny_model(target)
    sizes = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 7, "vocab_size": 64}
    (target / "config.json").write_text(json.dumps({**sizes, "max_position_embeddings": 128}))
    engine = EngineConfig(device="cpu")
    head = build_standalone(tmp_path / "heads", target, engine, tmp_path)
    assert (head.feature_layers, head.feature_width, head.max_draft_tokens) == ((7,), 32, 4)
    (target / "config.json").write_text(json.dumps({**sizes, "hidden_size": 48, "max_position_embeddings": 128}))
    with pytest.raises(ModelError, match="hidden size is 32, the target's 48"):
        build_standalone(tmp_path / "heads", target, engine, tmp_path)
