"""Compiled layers on a GPU, recorded and not: the logits of the model, and nothing is compiled in later steps."""

import copy
import logging

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import LlamaForCausalLM

from pilotfish.config import EngineConfig, Quantization
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.gpu_factory import build_gpu_decoder
from pilotfish.models.scaled_linear import quantise_linears

# The backend's own, about torch's modules and about float32, which these tests are in on purpose.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
]


@pytest.mark.parametrize(("quantization", "graphs"), [("none", True), ("none", False), ("int8", True)])
def test_a_compiled_model_computes_the_same(
    reference: LlamaForCausalLM,
    device: torch.device,
    quantization: Quantization,
    graphs: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    torch._dynamo.reset()
    engine = EngineConfig(quantization=quantization, cuda_graphs=graphs, max_sequences=1, max_draft_tokens=3)
    decoder = build_gpu_decoder(copy.deepcopy(reference), engine, device, max_context_tokens=64)
    decoder.allocate(8)
    decoder.record_graphs()
    assert "uncompiled" not in caplog.text

    def run(size: int, start: int) -> torch.Tensor:
        part = SequenceSlice(0, size, start, [3, 1, 2])
        return decoder.forward(StepInput(tokens[start : start + size], part.places, [part], range(size))).clone()

    tokens = list(range(40))
    pieces = [(20, 0), (1, 20), (4, 21), (15, 25)]
    logits = torch.cat([run(*piece) for piece in pieces]).cpu()
    expected = copy.deepcopy(reference)
    if quantization == "int8":
        quantise_linears(expected, "int8", torch.device("cpu"))
    theirs = expected(torch.tensor([tokens])).logits[0]
    # A sum in another order may round an input of the next layer to the other of two neighbours.
    assert (logits - theirs).norm() / theirs.norm() < (0.02 if quantization == "int8" else 1e-3)
    num_graphs = counters["stats"]["unique_graphs"]
    for piece in pieces:
        run(*piece)
    assert counters["stats"]["unique_graphs"] == num_graphs > 0
