"""Exits of decoders against transformers' own forward of the same layers, and what is refused."""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from pilotfish.config import InTargetDrafterConfig, config_from_dict
from pilotfish.drafters.early_exit.checkpoint import load_exit, save_exit
from pilotfish.drafters.early_exit.config import ExitConfig
from pilotfish.drafters.early_exit.draft import build_exit, build_in_target
from pilotfish.drafters.early_exit.in_target import Exit
from pilotfish.drafters.early_exit.module import ExitHead
from pilotfish.errors import ConfigError, ModelError, PilotfishError, UnsupportedModelError
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.capture import name_of_layers
from pilotfish.models.decoder import Decoder, StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.graphs.runner import GraphPlan
from pilotfish.models.loading import LoadedModel
from pilotfish.models.native.decoder import NativeDecoder
from tests.support.operation_recorder import OperationRecorder
from tests.support.row_attention import ReferenceBatch
from tests.support.tiny_models import tiny_model

VOCAB, EXIT_LAYER, NUM_LAYERS = 96, 2, 4
DRAFT_TOKENS = torch.arange(3, 53)  # not a multiple of what the kernels work in
BLOCKS = [5, 2, 9, 1, 7]
LENGTH = 76
KNOWN = 41
"""Positions that the target has computed before the exit goes on."""


@dataclass
class Case:
    """A target, its decoder, an exit of that, and the same as a model of its own."""

    target: PreTrainedModel
    decoder: Decoder
    exit: Exit
    reference: PreTrainedModel
    tolerance: float


def random_head(target: PreTrainedModel) -> ExitHead:
    config = ExitConfig(hidden_size=64, vocab_size=VOCAB, draft_vocab_size=len(DRAFT_TOKENS), exit_layer=EXIT_LAYER)
    head = ExitHead(config, target).requires_grad_(False)
    for parameter in head.parameters():
        parameter.normal_(std=0.15) if parameter.dim() > 1 else parameter.add_(torch.randn_like(parameter) * 0.1)
    head.token_map.copy_(DRAFT_TOKENS)
    return head


def reference_of(target: PreTrainedModel, head: ExitHead | None) -> PreTrainedModel:
    model = copy.deepcopy(target).float()
    body: Any = model.get_decoder()
    del getattr(body, name_of_layers(body))[EXIT_LAYER + (head is not None) :]
    if head is not None:
        body.layers[EXIT_LAYER].load_state_dict(head.block.state_dict())
        body.norm.load_state_dict(head.norm.state_dict())
        model.set_output_embeddings(copy.deepcopy(head.lm_head).float())
    return model


RUNTIMES = ("torch-llama", "packed-llama", "recorded-llama", "native-llama", "native-qwen3", "native-mistral")


BARE = ("torch-gemma3-bare", "torch-gpt2-bare", "torch-stablelm-bare")


@pytest.fixture(params=[*BARE, *(f"{each}-{way}" for each in RUNTIMES for way in ("bare", "trained"))])
def case(request: pytest.FixtureRequest, kernel_cache: Path) -> Case:
    runtime, kind, way = request.param.split("-")
    is_trained = way == "trained"
    dtype = torch.bfloat16 if runtime in ("native", "packed") else torch.float32
    target = tiny_model(kind, dtype, num_hidden_layers=NUM_LAYERS, intermediate_size=128)
    taken = copy.deepcopy(target)
    if runtime == "native":
        decoder: Decoder = NativeDecoder(taken, max_context_tokens=256, num_threads=2, cache_dir=kernel_cache)
    else:
        # As on a GPU: steps of up to 16 rows are recorded, others are not.
        on_rows: dict[str, Any] = {
            "row_attention": ReferenceBatch, "graphs": GraphPlan((1, 4, 16), 2, 256, OperationRecorder())
        }  # fmt: skip
        on_rows = on_rows if runtime == "recorded" else {}
        decoder = TransformersDecoder(taken, deterministic=False, max_context_tokens=256, **on_rows)
    head = random_head(taken).to(dtype) if is_trained else None
    reference = reference_of(target, head)
    if is_trained:
        decoder.capture((EXIT_LAYER,))
    way_out = build_exit(decoder, EXIT_LAYER, head)
    decoder.allocate(16)
    assert (way_out.allocate(16) > 0) == is_trained
    # A trained block has int8 weights on the kernels.
    return Case(target, decoder, way_out, reference, 0.05 if dtype is torch.bfloat16 else 1e-4)


def rows(tokens: list[int], start: int, end: int, logit_rows: range) -> StepInput:
    piece = SequenceSlice(0, end - start, start, BLOCKS)
    return StepInput(tokens[start:end], range(start, end), [piece], logit_rows)


def expected(case: Case, tokens: list[int]) -> Tensor:
    logits: Tensor = case.reference(torch.tensor([tokens])).logits[0].float()
    return logits


def test_the_exit_goes_on_where_the_target_stopped(case: Case) -> None:
    """And the target where the exit did, as if there were none."""
    tokens = torch.randint(0, VOCAB, (LENGTH,), generator=torch.Generator().manual_seed(5)).tolist()
    for start, end in ((0, 30), (30, KNOWN)):
        case.decoder.forward(rows(tokens, start, end, range(0)))
        if case.exit.is_trained:
            case.exit.take_in(rows(tokens, start, end, range(0)), case.decoder.features)
    theirs = expected(case, tokens)
    for start, end in ((KNOWN, KNOWN + 1), (KNOWN + 1, LENGTH - 16), (LENGTH - 16, LENGTH)):
        ours = case.exit.forward(rows(tokens, start, end, range(end - start)))
        assert ours.dtype is torch.float32
        assert (ours - theirs[start:end]).norm() <= case.tolerance * theirs[start:end].norm()
    verified = case.decoder.forward(rows(tokens, KNOWN, LENGTH, range(LENGTH - KNOWN))).clone().float()
    plain = case.target.float()(torch.tensor([tokens])).logits[0, KNOWN:]
    assert (verified - plain).norm() <= case.tolerance * plain.norm()


def test_sizes_that_the_kernels_cannot_cut_are_refused(kernel_cache: Path) -> None:
    target = tiny_model("llama", torch.bfloat16, intermediate_size=112)
    decoder = NativeDecoder(target, max_context_tokens=256, num_threads=1, cache_dir=kernel_cache)
    with pytest.raises(UnsupportedModelError, match=r"intermediate_size is 112.*set engine\.compile to false"):
        build_exit(decoder, EXIT_LAYER, random_head(target).bfloat16())


@pytest.fixture
def loaded() -> LoadedModel:
    model = tiny_model("llama", torch.float32, num_hidden_layers=NUM_LAYERS, vocab_size=64, hidden_size=32)
    return LoadedModel(model, Path(), "tiny", 64, 128, "the target's")


@pytest.fixture
def folder(loaded: LoadedModel, tmp_path: Path) -> Path:
    config = ExitConfig(
        hidden_size=32, vocab_size=64, draft_vocab_size=40, exit_layer=2, tokenizer_fingerprint="the target's"
    )
    save_exit(ExitHead(config, loaded.model), tmp_path / "exit")
    return tmp_path / "exit"


def test_a_folder_is_read_as_it_was_written(loaded: LoadedModel, folder: Path) -> None:
    head = load_exit(folder, loaded, dtype=torch.float32)
    save_exit(head, folder.parent / "again")
    assert (folder.parent / "again/config.json").read_text() == (folder / "config.json").read_text()
    again = load_exit(folder.parent / "again", loaded, dtype=torch.float32)
    for name, tensor in head.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def build(loaded: LoadedModel, **drafter: Any) -> None:
    decoder = TransformersDecoder(copy.deepcopy(loaded.model), deterministic=False, max_context_tokens=128)
    build_in_target(InTargetDrafterConfig(proposer="early_exit", **drafter), loaded, decoder, top_m=8)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"hidden_size": 48}, ModelError, "another target: its hidden size is 48, the target's 32"),
        ({"target_tokenizer_fingerprint": "other"}, ModelError, "another tokenizer"),
        ({"exit_layer": 4}, ModelError, "leaves after 4 layers, and the target has 4"),
        ({"exit_layer": 0}, UnsupportedModelError, "exit_layer is 0"),
        ({"model_type": "medusa"}, UnsupportedModelError, "holds no trained exit"),
        ({"truncated_vocab_size": 41}, ModelError, r"token_map has the shape \[40\]; its config\.json asks for \[41\]"),
    ],
)
def test_another_targets_exit_is_refused(
    loaded: LoadedModel, folder: Path, values: dict[str, object], error: type[PilotfishError], message: str
) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    with pytest.raises(error, match=message):
        build(loaded, model=str(folder))


def test_layers_that_there_are_not_are_refused(loaded: LoadedModel, folder: Path) -> None:
    build(loaded, model=str(folder), exit_layer=2)
    with pytest.raises(ConfigError, match=r"exit_layer is 3, and the exit in .* was trained to leave after 2 layers"):
        build(loaded, model=str(folder), exit_layer=3)
    build(loaded, exit_layer=3)
    with pytest.raises(ConfigError, match="exit_layer is 4; a target of 4 layers can be left after 1 to 3"):
        build(loaded, exit_layer=4)


def test_targets_that_cannot_be_left_are_refused(loaded: LoadedModel, folder: Path) -> None:
    class Elsewhere:
        name = "parallel"

    with pytest.raises(UnsupportedModelError, match="early exits do not run on the parallel decoder"):
        build_exit(Elsewhere(), 2, None)  # type: ignore[arg-type]
    other = tiny_model("gemma3", torch.float32, num_hidden_layers=NUM_LAYERS, vocab_size=64, hidden_size=32)
    with pytest.raises(UnsupportedModelError, match=r"architectures llama, .* is 'gemma3_text': leave target\.drafter"):
        load_exit(folder, LoadedModel(other, Path(), "tiny", 64, 128, "the target's"))
    for target, message in (
        ({"tensor_parallel_size": 2, "drafter": {"proposer": "early_exit"}}, "in one process.*choose another drafter"),
        ({"drafter": {"proposer": "none", "exit_layer": 3}}, "proposer none has none: .* to early_exit"),
    ):
        with pytest.raises(ConfigError, match=message):
            config_from_dict({"target": target})
