"""Compiled layers: the same logits, few compilations, and a model that cannot be compiled runs as it is."""

import copy
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.compiled import compile_layers
from pilotfish.models.decoder import StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.graphs.recorder import EagerRecorder
from pilotfish.models.graphs.runner import GraphPlan
from tests.support.row_attention import ReferenceBatch
from tests.support.tiny_models import tiny_model

# Of torch's own modules, which the backend imports.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")

ROWS = (40, 1, 4, 7, 1, 16, 3, 2, 20, 1)
"""Of the steps of one sequence: some recorded, some not."""
VARIANTS = 3
"""One row or more, and row counts that happen to be another size as well."""
GRAPHS = 6
"""Of a layer, which attention cuts in pieces, of the norm and of the rotary embedding."""


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def on_backend(monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))


def logits_of(model: Any) -> list[Tensor]:
    decoder = TransformersDecoder(
        model,
        deterministic=False,
        max_context_tokens=256,
        row_attention=ReferenceBatch,
        graphs=GraphPlan((1, 4, 8, 32), 1, 256, EagerRecorder()),
    )
    decoder.allocate(16)
    decoder.record_graphs()
    start, logits = 0, []
    for size in ROWS:
        part = SequenceSlice(0, size, start, range(1, 8))
        tokens = [(7 * place) % 90 for place in part.places]
        logits.append(decoder.forward(StepInput(tokens, part.places, [part], range(size))).clone())
        start += size
    return logits


def fail(*_: Any) -> Any:
    raise RuntimeError("no compiler")


def test_a_rank_that_cannot_compile_does_not_run_a_layer_again(monkeypatch: pytest.MonkeyPatch) -> None:
    on_backend(monkeypatch, fail)
    model = tiny_model("llama", torch.float32)
    compile_layers(model, falls_back=False)
    with pytest.raises(torch._dynamo.exc.TorchDynamoException, match="no compiler"):
        logits_of(model)


def test_what_cannot_be_compiled_runs_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    on_backend(monkeypatch, fail)
    model = tiny_model("llama", torch.float32)
    expected = logits_of(copy.deepcopy(model))
    compile_layers(model)
    for ours, theirs in zip(logits_of(model), expected, strict=True):
        assert torch.equal(ours, theirs)
    (record,) = (record for record in caplog.records if record.name == "pilotfish.models.compiled")
    assert "LlamaModel runs uncompiled" in record.message
    assert "no compiler" in record.message


def test_without_a_compiler_it_is_known_before_a_model_is_loaded(tmp_path: Path) -> None:
    script = "import torch; from pilotfish.models.compiled import can_compile; print(can_compile(torch.device('cpu')))"
    nowhere = {"CC": "/nonexistent", "CXX": "/nonexistent", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | nowhere, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["False"]
    assert "nothing can be compiled here" in found.stderr
