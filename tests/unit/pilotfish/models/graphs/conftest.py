"""A tiny Llama, and decoders of it that record their steps."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.graphs.runner import GraphPlan
from tests.support.operation_recorder import OperationRecorder
from tests.support.row_attention import ReferenceBatch
from tests.support.tiny_llama import tiny_llama

VOCAB = 64
CONTEXT = 128


@pytest.fixture(scope="session")
def tiny() -> LlamaForCausalLM:
    return tiny_llama(5, vocab_size=VOCAB, num_hidden_layers=3, max_position_embeddings=CONTEXT)


@pytest.fixture
def recorder() -> OperationRecorder:
    return OperationRecorder()


@pytest.fixture
def make_decoder(tiny: LlamaForCausalLM, recorder: OperationRecorder) -> Callable[..., TransformersDecoder]:
    """A decoder over 40 blocks; with sizes, its steps are recorded by `recorder`, and attention is the reference's."""

    def make(sizes: tuple[int, ...] = (), model: Any = None) -> TransformersDecoder:
        decoder = TransformersDecoder(
            copy.deepcopy(model or tiny),
            deterministic=False,
            max_context_tokens=CONTEXT,
            row_attention=ReferenceBatch if sizes else None,
            graphs=GraphPlan(sizes, 4, CONTEXT, recorder) if sizes else None,
        )
        decoder.allocate(40)
        return decoder

    return make
