"""The engine on a GPU: greedy text with speculation is the target's own; sampling; how large the cache becomes."""

from collections.abc import Callable

import pytest
import torch
from transformers import LlamaForCausalLM

from pilotfish.config import EngineConfig
from pilotfish.drafters.eagle3.draft import build_eagle3_head
from pilotfish.drafters.eagle3.in_target import Eagle3Drafter
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.drafters.early_exit.draft import build_exit
from pilotfish.drafters.early_exit.in_target import EarlyExitDrafter
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.engine.process.gpu import record_graphs, with_kv_cache_tokens
from pilotfish.engine.process.warm_up import warm_up
from pilotfish.messages import Decode, OpenSequence, Verdict, Verify
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.speculation.rounds import Round, verify
from pilotfish.speculation.sampling.history import TokenHistory
from pilotfish.types import ModelInfo, SamplingParams, TreeRequest
from tests.support.tiny_models import greedy_text, tiny_eagle3_config

NUM_TOKENS = 24
PROMPTS = {1: [5, 9, 3] * 4, 2: [7] * 17, 3: list(range(30))}
FEATURE_LAYERS = (0, 1, 2)
GREEDY = SamplingParams(temperature=0, max_tokens=400)

Make = Callable[..., TransformersDecoder]


def core_of(decoder: TransformersDecoder, head_hidden_size: int = 0, exit_layer: int = 0) -> EngineCore:
    info = ModelInfo(model_id="tiny", tokenizer_fingerprint="none", vocab_size=256, max_context_tokens=512)
    config = EngineConfig(kv_cache_tokens=1024, dtype="float32", max_draft_tokens=7)
    drafter: InTargetDrafter | None = None
    if head_hidden_size:
        decoder.capture(FEATURE_LAYERS)
        head = tiny_eagle3_config(
            hidden_size=head_hidden_size,
            head_dim=64,
            vocab_size=256,
            draft_vocab_size=256,
            feature_layers=FEATURE_LAYERS,
        )
        module = Eagle3Head(head).requires_grad_(False)
        module.set_draft_vocabulary(torch.arange(256))
        drafter = Eagle3Drafter(decoder, build_eagle3_head(decoder, module), top_m=8)
    if exit_layer:
        drafter = EarlyExitDrafter(decoder, build_exit(decoder, exit_layer, None), top_m=8)
    core = EngineCore(decoder, config, info, drafter=drafter)
    record_graphs(decoder)
    warm_up(core)
    return core


def settle(core: EngineCore, texts: dict[int, list[int]]) -> None:
    while core.has_work:
        for event in core.step():
            if isinstance(event, Verdict):
                texts[event.sequence_id] += event.token_ids


@pytest.mark.parametrize("graphs", [False, True])
def test_greedy_text_with_drafts_is_the_targets_own(
    make_decoder: Make, reference: LlamaForCausalLM, graphs: bool
) -> None:
    """Right drafts, wrong ones in a tree, and none, in one batch."""
    core = core_of(make_decoder(graphs=graphs))
    expected = {key: greedy_text(reference, prompt, NUM_TOKENS) for key, prompt in PROMPTS.items()}
    texts: dict[int, list[int]] = {key: [] for key in PROMPTS}
    for key, prompt in PROMPTS.items():
        core.submit(OpenSequence(key, tuple(prompt), GREEDY))
        core.submit(Decode(key, len(prompt), 1))
    settle(core, texts)
    while any(len(text) < NUM_TOKENS for text in texts.values()):
        for key, text in texts.items():
            if len(text) >= NUM_TOKENS:
                continue
            length, ahead = (len(PROMPTS[key]) + len(text), tuple(expected[key][len(text) : len(text) + 3]))
            wrong = (ahead[0] + 1) % 256
            if key == 1:
                core.submit(Verify(key, length, ahead))
            elif key == 2:
                core.submit(Verify(key, length, (wrong, ahead[0], wrong), parents=(-1, -1, 1)))
            else:
                core.submit(Decode(key, length, 1))
        settle(core, texts)
    assert {key: text[:NUM_TOKENS] for key, text in texts.items()} == expected


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("drafter", ["eagle3", "early_exit"])
def test_a_drafter_in_the_engine_changes_no_text(
    make_decoder: Make, reference: LlamaForCausalLM, drafter: str, graphs: bool
) -> None:
    sizes = {"head_hidden_size": reference.config.hidden_size} if drafter == "eagle3" else {"exit_layer": 1}
    core = core_of(make_decoder(graphs=graphs), **sizes)
    texts: dict[int, list[int]] = {key: [] for key in PROMPTS}
    for key, prompt in PROMPTS.items():
        core.submit(OpenSequence(key, tuple(prompt), GREEDY))
        tree = TreeRequest(8, 2) if key == 1 else None
        core.submit(Decode(key, len(prompt), NUM_TOKENS, num_draft_tokens=4, tree=tree))
    settle(core, texts)
    assert {key: text[:NUM_TOKENS] for key, text in texts.items()} == {
        key: greedy_text(reference, prompt, NUM_TOKENS) for key, prompt in PROMPTS.items()
    }


@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        SamplingParams(seed=3),
        SamplingParams(seed=4, temperature=0.7, top_p=0.9),
        SamplingParams(seed=5, top_k=40, min_p=0.01, repetition_penalty=1.2),
        SamplingParams(temperature=0, logit_bias=((3, 5.0),)),
    ],
)
def test_the_same_logits_give_the_same_tokens_as_on_the_cpu(device: torch.device, sampling: SamplingParams) -> None:
    """The random numbers are functions of seed and position, on any device."""
    logits = torch.randn(12 * 4, 5000, generator=torch.Generator().manual_seed(2)) * 3
    drafts = (17, 4999, 3)
    rounds = [
        Round(sampling, 100 + 10 * index, drafts, (), TokenHistory([1, 2, 3]) if sampling.has_penalties else None)
        for index in range(12)
    ]
    assert verify(logits.to(device), rounds) == verify(logits, rounds)


def test_the_cache_takes_what_the_gpu_has_left(make_decoder: Make, device: torch.device) -> None:
    decoder = make_decoder(torch.bfloat16, graphs=True)
    _, total_bytes = torch.cuda.mem_get_info(device)
    # Little of it: other tests and people share the GPU.
    share = (torch.cuda.memory_allocated(device) + (3 << 30)) / total_bytes
    engine = with_kv_cache_tokens(EngineConfig(kv_cache_tokens=0, gpu_memory_utilization=share), decoder)
    assert engine.kv_cache_tokens > 10_000
    decoder.allocate(engine.kv_cache_tokens // 16 + 1)
    decoder.record_graphs()
    assert torch.cuda.memory_allocated(device) < share * total_bytes
