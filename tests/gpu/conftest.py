"""What needs a CUDA device: run where there is one, skipped with a reason elsewhere."""

import copy
import gc
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from transformers import LlamaForCausalLM

from pilotfish.models.attention.modules import attention_shapes
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.gpu_factory import choose_attention
from pilotfish.models.graphs.runner import GraphPlan
from tests.support.tiny_llama import tiny_llama

VOCAB = 256
CONTEXT = 512
NUM_BLOCKS = 80


@pytest.fixture(scope="session", autouse=True)
def device() -> torch.device:
    """The first CUDA device."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    return torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def no_memory_stays(device: torch.device) -> Iterator[None]:
    """Each test gives back what it took."""
    yield
    gc.collect()
    torch.cuda.empty_cache()


@pytest.fixture
def no_waiting() -> Iterator[None]:
    """Whatever makes the host wait for the device is an error."""
    torch.cuda.synchronize()
    with warnings.catch_warnings():  # torch calls the mode a prototype
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.fixture(scope="session")
def reference() -> LlamaForCausalLM:
    """A small Llama in float32 on the CPU, whose logits lie far apart; heads of 64, as kernels want them."""
    sizes = {"vocab_size": VOCAB, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "head_dim": 64}
    return tiny_llama(spread=4.0, max_position_embeddings=CONTEXT, **sizes)


@pytest.fixture
def make_decoder(reference: LlamaForCausalLM, device: torch.device) -> Callable[..., TransformersDecoder]:
    """The reference on the GPU; with graphs, all of them are recorded."""

    def make(
        dtype: torch.dtype = torch.float32, *, graphs: bool = False, attention: str = "triton", blocks: int = NUM_BLOCKS
    ) -> TransformersDecoder:
        model = copy.deepcopy(reference).to(device, dtype)
        decoder = TransformersDecoder(
            model,
            deterministic=False,
            max_context_tokens=CONTEXT,
            row_attention=choose_attention(attention, attention_shapes(model), 2, dtype, device),  # type: ignore[arg-type]
            graphs=GraphPlan((1, 4, 8, 32), 4, CONTEXT) if graphs else None,
        )
        decoder.allocate(blocks)
        decoder.record_graphs()
        return decoder

    return make
