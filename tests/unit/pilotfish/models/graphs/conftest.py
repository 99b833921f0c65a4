"""A tiny Llama, and a recorder that does on any device what a CUDA graph does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import LlamaForCausalLM

from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.graphs.recorder import Work
from pilotfish.models.graphs.shapes import Buckets
from tests.support.tiny_llama import tiny_llama

VOCAB = 64
CONTEXT = 128


class OperationRecorder:
    """Writes down the tensor operations of the work and repeats them over the same tensors, as a CUDA graph does.

    What the host decided while recording is decided for good, and what it would decide later has no effect.
    """

    def __init__(self) -> None:
        self.num_recorded = 0

    def record(self, work: Work) -> Work:
        self.num_recorded += 1
        work()  # warm-up
        operations: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

        class Log(TorchDispatchMode):
            def __torch_dispatch__(
                self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
            ) -> Any:
                result = func(*args, **(kwargs or {}))
                operations.append((func, args, kwargs or {}, result))
                return result

        with Log():
            work()

        def replay() -> None:
            for func, args, kwargs, result in operations:
                again = func(*args, **kwargs)
                for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)

        return replay


@pytest.fixture(scope="session")
def tiny() -> LlamaForCausalLM:
    torch.set_num_threads(1)
    return tiny_llama(5, vocab_size=VOCAB, num_hidden_layers=3, max_position_embeddings=CONTEXT)


@pytest.fixture
def recorder() -> OperationRecorder:
    return OperationRecorder()


@pytest.fixture
def make_decoder(tiny: LlamaForCausalLM, recorder: OperationRecorder) -> Callable[..., TransformersDecoder]:
    """A decoder over 40 blocks; with buckets, its steps are recorded by `recorder`."""

    def make(buckets: Buckets | None = None, model: Any = None) -> TransformersDecoder:
        decoder = TransformersDecoder(
            copy.deepcopy(model or tiny),
            deterministic=False,
            max_context_tokens=CONTEXT,
            buckets=buckets,
            recorder=recorder,
        )
        decoder.allocate(40)
        return decoder

    return make
