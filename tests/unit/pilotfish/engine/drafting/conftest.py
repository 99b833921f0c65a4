"""A target that keeps features, and a head apart from it."""

import copy

import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM

from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.drafters.eagle3.torch_head import TorchEagle3Head
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.feature_store import FeatureStore
from pilotfish.engine.core.grammars import Grammars
from pilotfish.engine.drafting.head_core import HeadCore
from pilotfish.models.decoder_transformers import TransformersDecoder
from tests.support.engine_events import ticking_clock
from tests.support.head_rounds import CONTEXT, LAYERS, MakeHeadCore, engine_config, info


@pytest.fixture(scope="module")
def target_model(tiny_llama: LlamaForCausalLM) -> LlamaForCausalLM:
    return copy.deepcopy(tiny_llama).to(torch.bfloat16)


@pytest.fixture(scope="module")
def module(eagle3_module: Eagle3Head) -> Eagle3Head:
    return copy.deepcopy(eagle3_module).to(torch.bfloat16)


@pytest.fixture
def target(target_model: LlamaForCausalLM) -> EngineCore:
    decoder = TransformersDecoder(copy.deepcopy(target_model), deterministic=True, max_context_tokens=CONTEXT)
    return EngineCore(decoder, engine_config(), info(), features=FeatureStore(decoder, LAYERS))


@pytest.fixture
def make_head_core(target_model: LlamaForCausalLM, module: Eagle3Head) -> MakeHeadCore:
    def make(grammars: Grammars | None = None, **changes: int) -> HeadCore:
        embeddings = nn.Embedding.from_pretrained(target_model.get_input_embeddings().weight.clone())
        head = TorchEagle3Head(copy.deepcopy(module), embeddings, deterministic=True)
        model = info(proposer="eagle3", feature_layers=LAYERS)
        return HeadCore(head, engine_config(**changes), model, top_m=8, grammars=grammars, clock_ns=ticking_clock())

    return make
