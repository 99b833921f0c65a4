"""A tiny random Llama and an engine core over it."""

import copy
from collections.abc import Sequence
from functools import partial

import pytest
import torch
from transformers import LlamaForCausalLM

from pilotfish.config import EngineConfig
from pilotfish.drafters.eagle3.draft import build_eagle3_head
from pilotfish.drafters.eagle3.in_target import Eagle3Drafter
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.drafters.medusa.config import MedusaConfig
from pilotfish.drafters.medusa.head import MedusaHead
from pilotfish.drafters.medusa.in_target import MedusaDrafter
from pilotfish.drafters.medusa.module import MedusaHeads
from pilotfish.engine.core import in_target_drafting
from pilotfish.engine.core.draft_costs import DraftCosts, Thresholds
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.feature_store import FeatureStore
from pilotfish.engine.core.forced_drafts import ForcedTokens
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.core.in_target_drafting import InTargetDrafter
from pilotfish.models.decoder import Decoder
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.speculation.trees.tree import MAX_TREE_NODES
from pilotfish.types import ModelInfo
from tests.support.engine_events import GreedyText, MakeCore, MakeDrafter, ticking_clock
from tests.support.tiny_llama import tiny_llama as make_tiny_llama
from tests.support.tiny_models import greedy_text as make_greedy_text
from tests.support.tiny_models import tiny_eagle3_config

VOCAB = 64
CONTEXT = 128


@pytest.fixture(scope="session")
def tiny_llama() -> LlamaForCausalLM:
    return make_tiny_llama(vocab_size=VOCAB, max_position_embeddings=CONTEXT)


@pytest.fixture(scope="session")
def greedy_text(tiny_llama: LlamaForCausalLM) -> GreedyText:
    return partial(make_greedy_text, tiny_llama)


@pytest.fixture(scope="session")
def eagle3_module() -> Eagle3Head:
    """For the tiny Llama; float32."""
    torch.manual_seed(23)
    module = Eagle3Head(tiny_eagle3_config())
    module.set_draft_vocabulary(torch.arange(12, 52))
    for parameter in module.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(6.0)  # sure of itself: drafts get long
    return module.eval().requires_grad_(False)


@pytest.fixture(scope="session")
def medusa_heads() -> MedusaHeads:
    """For the tiny Llama; float32, and never right twice in a row but by luck."""
    torch.manual_seed(5)
    heads = MedusaHeads(MedusaConfig(hidden_size=32, vocab_size=VOCAB, num_heads=4, draft_vocab_size=40))
    heads.token_map.copy_(torch.arange(12, 52))
    for parameter in heads.parameters():
        parameter.data.normal_(std=0.5)
    return heads.eval().requires_grad_(False)


@pytest.fixture(params=["eagle3", "medusa"])
def make_drafter(request: pytest.FixtureRequest, eagle3_module: Eagle3Head, medusa_heads: MedusaHeads) -> MakeDrafter:
    """A head for the tiny Llama, in the target."""

    def make_medusa(decoder: Decoder) -> InTargetDrafter:
        head = MedusaHead(copy.deepcopy(medusa_heads), (2,))
        decoder.capture(head.feature_layers)
        return MedusaDrafter(decoder, head, top_m=8)

    if request.param == "medusa":
        return make_medusa

    def make(decoder: Decoder) -> InTargetDrafter:
        decoder.capture(eagle3_module.config.feature_layers)
        return Eagle3Drafter(decoder, build_eagle3_head(decoder, copy.deepcopy(eagle3_module)), top_m=8)

    return make


@pytest.fixture
def make_core(tiny_llama: LlamaForCausalLM) -> MakeCore:
    def make(
        make_drafter: MakeDrafter | None = None,
        *,
        feature_layers: Sequence[int] = (),
        grammars: Grammars | None = None,
        forced_tokens: ForcedTokens | None = None,
        deterministic: bool = False,
        context: int = CONTEXT,
        **changes: int | bool,
    ) -> EngineCore:
        settings = {"kv_cache_tokens": 1024, "max_batch_tokens": 48, "dtype": "float32", "max_draft_tokens": 8}
        decoder = TransformersDecoder(
            copy.deepcopy(tiny_llama), deterministic=deterministic, max_context_tokens=context
        )
        return EngineCore(
            decoder,
            EngineConfig(**{**settings, **changes}),
            ModelInfo(model_id="tiny", tokenizer_fingerprint="none", vocab_size=VOCAB, max_context_tokens=context),
            drafter=None if make_drafter is None else make_drafter(decoder),
            features=FeatureStore(decoder, feature_layers) if feature_layers else None,
            grammars=grammars,
            forced_tokens=forced_tokens,
            clock_ns=ticking_clock(),
        )

    return make


@pytest.fixture
def drafts_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """What drafts and rows take on this machine shortens none."""
    monkeypatch.setattr(DraftCosts, "thresholds", lambda *_: Thresholds(0.0, 0.0))
    monkeypatch.setattr(in_target_drafting, "num_free_nodes", lambda *_: MAX_TREE_NODES)
