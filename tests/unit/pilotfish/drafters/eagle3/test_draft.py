"""A head sees what it must and no more, whatever its target runs on; apart from it, it computes the same."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from pilotfish.config import EngineConfig
from pilotfish.drafters.eagle3.checkpoint import load_eagle3, save_eagle3
from pilotfish.drafters.eagle3.draft import build_eagle3_head, build_standalone, prepare_version
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.drafters.eagle3.native_head import NativeEagle3Head
from pilotfish.errors import ModelError, UnsupportedModelError
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.feature_head import FeatureHead, HeadStep
from pilotfish.models.graphs.runner import GraphPlan
from pilotfish.models.store.head_config import HeadTarget
from pilotfish.speculation.trees.tree import DraftTree
from tests.support.operation_recorder import OperationRecorder
from tests.support.row_attention import ReferenceBatch
from tests.support.tiny_llama import SIZES, tiny_llama
from tests.support.tiny_models import tiny_eagle3_config

HIDDEN, VOCAB = SIZES["hidden_size"], SIZES["vocab_size"]


def head_beside(seed: int = 3, **attention: Any) -> FeatureHead:
    decoder = TransformersDecoder(tiny_llama(), deterministic=False, max_context_tokens=64, **attention)
    head = build_eagle3_head(decoder, module_of(seed))
    head.allocate(4)
    return head


def module_of(seed: int) -> Eagle3Head:
    torch.manual_seed(seed)
    module = Eagle3Head(tiny_eagle3_config(draft_vocab_size=VOCAB, max_position_embeddings=64))
    module.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
    module.set_draft_vocabulary(torch.arange(VOCAB))
    return module.eval().requires_grad_(False)


def logits(head: FeatureHead, first_token: int) -> Tensor:
    """Of all rows but the first, whose key nobody may see."""
    states = torch.randn(12, 3 * HIDDEN, generator=torch.Generator().manual_seed(5))
    states[0] = first_token
    tokens = [first_token, *range(1, 12)]
    step = HeadStep(tokens, range(12), [SequenceSlice(0, 12, 0, [2])], range(12), states)
    return head.forward(step).logits[1:]


def test_a_head_never_sees_its_first_key_and_computes_the_same_however_it_runs() -> None:
    plan = GraphPlan((1, 4, 16), 2, 64, OperationRecorder())
    expected = logits(head_beside(), 7)
    for attention in ({}, {"row_attention": ReferenceBatch}, {"row_attention": ReferenceBatch, "graphs": plan}):
        head = head_beside(**attention)
        assert torch.equal(logits(head, 7), logits(head, 23))
        assert (logits(head, 7) - expected).abs().max() < 1e-5


@pytest.mark.parametrize("is_recorded", [False, True])
def test_recorded_forwards_go_on_with_other_weights(is_recorded: bool) -> None:
    plan = GraphPlan((1, 4, 16), 2, 64, OperationRecorder())
    head = head_beside(row_attention=ReferenceBatch, graphs=plan if is_recorded else None)
    before, expected = logits(head, 7).clone(), logits(head_beside(4), 7)
    head.prepare(module_of(4))()  # type: ignore[attr-defined]
    assert (logits(head, 7) - expected).abs().max() < 1e-5
    assert (before - expected).abs().max() > 1e-2


def test_a_recorded_head_goes_on_from_its_own_states() -> None:
    """Two levels of drafts behind features, the second over more rows; then the pool is another."""
    plan = GraphPlan((1, 4, 16), 2, 64, OperationRecorder())
    recorded, plain = head_beside(row_attention=ReferenceBatch, graphs=plan), head_beside()
    for _ in range(2):
        results = []
        for head in (recorded, plain):
            head.allocate(4)
            logits(head, 7)
            step = HeadStep([3], [12], [SequenceSlice(0, 1, 12, [2])], [0], torch.ones(1, HIDDEN))
            first = head.forward(step).hidden.clone()
            tree = DraftTree((-1, 0, 0))
            rows = SequenceSlice(0, 2, 13, [2], tree)
            results.append(
                head.forward(HeadStep([5, 9], [13, 13], [rows], range(2), first.repeat(2, 1))).logits.clone()
            )
        assert (results[0] - results[1]).abs().max() < 1e-5


APART_HIDDEN, APART_VOCAB = 64, 300


@pytest.fixture
def target_folder(write_tiny_model: Callable[[Path], None], tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    write_tiny_model(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": APART_HIDDEN, "num_hidden_layers": 8}))
    torch.manual_seed(1)
    save_weights(folder, torch.randn(APART_VOCAB, APART_HIDDEN).bfloat16())
    return folder


def save_weights(folder: Path, embeddings: Tensor, name: str = "model.embed_tokens.weight") -> None:
    save_file({"model.norm.weight": torch.ones(APART_HIDDEN)}, folder / "a.safetensors")
    save_file({name: embeddings}, folder / "b.safetensors")


@pytest.fixture
def head_folder(tmp_path: Path) -> Path:
    torch.manual_seed(2)
    config = tiny_eagle3_config(
        hidden_size=APART_HIDDEN,
        intermediate_size=64,
        head_dim=16,
        vocab_size=APART_VOCAB,
        draft_vocab_size=96,
        feature_layers=(2, 4, 5),
    )
    save_eagle3(Eagle3Head(config), tmp_path / "head")
    return tmp_path / "head"


ENGINE = EngineConfig(device="cpu", num_threads=1, max_context_tokens=128, deterministic=True)


def run(head, features: Tensor) -> tuple[Tensor, Tensor]:
    head.allocate(3)
    rows = len(features)
    step = HeadStep(range(5, 5 + rows), range(1, 1 + rows), [SequenceSlice(0, rows, 1, [1, 2])], [rows - 1], features)
    output = head.forward(step)
    return output.logits.clone(), output.hidden.clone()


def test_both_runtimes_compute_what_the_module_does_with_the_targets_embeddings(
    target_folder: Path, head_folder: Path, tmp_path: Path, kernel_cache: Path
) -> None:
    torch.manual_seed(1)
    embeddings = torch.randn(APART_VOCAB, APART_HIDDEN).bfloat16()
    torch.manual_seed(3)
    features = torch.randn(7, 3 * APART_HIDDEN).bfloat16()
    module = load_eagle3(head_folder, num_target_layers=8, dtype=torch.bfloat16)
    hidden, logits = module(embeddings[5:12], module.fuse(features), torch.arange(1, 8))
    plain = build_standalone(head_folder, target_folder, replace(ENGINE, compile=False), tmp_path)
    native = build_standalone(head_folder, target_folder, ENGINE, kernel_cache)
    for head in (plain, native):
        found_logits, found_hidden = run(head, features)
        torch.testing.assert_close(found_hidden, hidden[-1:], rtol=0.05, atol=0.05)
        torch.testing.assert_close(found_logits, logits[-1:].float(), rtol=0.05, atol=0.05)
        assert head.feature_layers == (2, 4, 5)
    assert isinstance(native, NativeEagle3Head)


def test_another_targets_head_is_refused(target_folder: Path, head_folder: Path, tmp_path: Path) -> None:
    config = json.loads((target_folder / "config.json").read_text())
    (target_folder / "config.json").write_text(json.dumps({**config, "hidden_size": 48}))
    with pytest.raises(ModelError, match="head"):
        build_standalone(head_folder, target_folder, ENGINE, tmp_path)


def test_embeddings_that_are_missing_or_misshapen_are_named(
    target_folder: Path, head_folder: Path, tmp_path: Path
) -> None:
    save_weights(target_folder, torch.zeros(APART_VOCAB, APART_HIDDEN - 1))
    with pytest.raises(ModelError, match=r"b.safetensors: model.embed_tokens.weight has the shape \[300, 63\]"):
        build_standalone(head_folder, target_folder, ENGINE, tmp_path)
    save_weights(target_folder, torch.zeros(APART_VOCAB, APART_HIDDEN), name="wte.weight")
    with pytest.raises(UnsupportedModelError, match=r"no tensor whose name ends with embed_tokens.weight"):
        build_standalone(head_folder, target_folder, ENGINE, tmp_path)


@pytest.mark.parametrize("is_native", [False, True])
def test_a_head_goes_on_with_a_versions_weights_and_vocabulary(
    target_folder: Path, head_folder: Path, tmp_path: Path, kernel_cache: Path, is_native: bool
) -> None:
    torch.manual_seed(4)
    features = torch.randn(7, 3 * APART_HIDDEN).bfloat16()
    version = load_eagle3(head_folder, num_target_layers=8)
    for parameter in version.parameters():
        parameter.data.mul_(1.5)
    known = version.target_token_ids
    version.set_draft_vocabulary(known + 1 if known[-1] + 1 < APART_VOCAB else known - 1)
    save_eagle3(version, tmp_path / "version")

    def built(folder: Path) -> FeatureHead:
        return build_standalone(folder, target_folder, replace(ENGINE, compile=is_native), kernel_cache)

    head = built(head_folder)
    assert isinstance(head, NativeEagle3Head) == is_native
    before, _ = run(head, features)
    exchange = prepare_version(head, tmp_path / "version", HeadTarget.of_folder(target_folder))
    assert torch.equal(run(head, features)[0], before), "it goes on as it was until then"
    exchange()
    expected, (logits, hidden) = built(tmp_path / "version"), run(head, features)
    for found, wanted in zip((logits, hidden), run(expected, features), strict=True):
        assert torch.equal(found, wanted)
    assert not torch.equal(logits, before)
    assert torch.equal(head.draft_token_ids, expected.draft_token_ids)


def test_keys_of_before_stay_where_weights_are_exchanged(
    target_folder: Path, head_folder: Path, kernel_cache: Path
) -> None:
    """A sequence under way goes on: its next row looks at rows that the version before has written."""
    torch.manual_seed(4)
    features = torch.randn(8, 3 * APART_HIDDEN).bfloat16()
    heads = [build_standalone(head_folder, target_folder, ENGINE, kernel_cache) for _ in range(2)]
    target = HeadTarget.of_folder(target_folder)
    last = HeadStep([12], [8], [SequenceSlice(0, 1, 8, [1, 2])], [0], features[7:])
    outputs = []
    for head, is_exchanged in zip(heads, (False, True), strict=True):
        run(head, features[:7])
        if is_exchanged:
            prepare_version(head, head_folder, target)()
        outputs.append(head.forward(last).logits.clone())
    assert torch.equal(*outputs)


def test_a_version_of_other_sizes_is_refused(target_folder: Path, head_folder: Path, tmp_path: Path) -> None:
    head = build_standalone(head_folder, target_folder, replace(ENGINE, compile=False), tmp_path)
    config = load_eagle3(head_folder, num_target_layers=8).config
    save_eagle3(Eagle3Head(replace(config, intermediate_size=2 * config.intermediate_size)), tmp_path / "version")
    target = HeadTarget.of_folder(target_folder)
    with pytest.raises(UnsupportedModelError, match="has another intermediate_size than the one that drafts"):
        prepare_version(head, tmp_path / "version", target)
    with pytest.raises(ModelError, match="another target"):
        prepare_version(head, head_folder, replace(target, hidden_size=48))
