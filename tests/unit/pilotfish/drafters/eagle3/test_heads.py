"""Heads in an engine against the module itself, over random cuts, blocks and drafts."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from pilotfish.drafters.eagle3.draft import build_eagle3_head
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.errors import UnsupportedModelError
from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import Decoder
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.feature_head import FeatureHead, HeadOutput, HeadStep
from pilotfish.models.native.decoder import NativeDecoder
from tests.support.tiny_models import SIZES, tiny_eagle3_config

VOCAB, HIDDEN = 96, 64
CONFIG = tiny_eagle3_config(
    hidden_size=HIDDEN,
    intermediate_size=96,
    head_dim=16,
    vocab_size=VOCAB,
    draft_vocab_size=50,  # not a multiple of what the kernels work in
    max_position_embeddings=256,
    feature_layers=(1, 2, 3),
)
BLOCKS = [5, 2, 9, 1, 7]
LENGTH = 70


@dataclass
class Case:
    """A head in an engine, and what it is to equal."""

    target: PreTrainedModel
    decoder: Decoder
    module: Eagle3Head
    head: FeatureHead
    tolerance: float

    @property
    def embeddings(self) -> nn.Module:
        return self.module.embed_tokens or self.target.get_input_embeddings()


def tiny_target() -> PreTrainedModel:
    config = LlamaConfig(**SIZES | {"num_hidden_layers": 4}, tie_word_embeddings=True)
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def tiny_head(own_embeddings: bool) -> Eagle3Head:
    module = Eagle3Head(CONFIG)
    if own_embeddings:
        module.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
    module.set_draft_vocabulary(torch.arange(2, 2 + CONFIG.draft_vocab_size))
    for parameter in module.parameters():  # larger than the default: attention and norms must matter
        parameter.data.mul_(3.0) if parameter.dim() > 1 else parameter.data.add_(torch.randn_like(parameter) * 0.2)
    return module.eval().requires_grad_(False)


NATIVE = ("native", "native-own-embeddings")
only_native = pytest.mark.parametrize("case", NATIVE, indirect=True, scope="module")


@pytest.fixture(scope="module", params=["torch", *NATIVE])
def case(request: pytest.FixtureRequest, kernel_cache: Path) -> Case:
    torch.manual_seed(11)
    target, module = tiny_target(), tiny_head(request.param == "native-own-embeddings")
    if request.param == "torch":
        decoder: Decoder = TransformersDecoder(copy.deepcopy(target), deterministic=False, max_context_tokens=256)
    else:
        target, module = target.bfloat16(), module.bfloat16()
        decoder = NativeDecoder(copy.deepcopy(target), max_context_tokens=256, num_threads=2, cache_dir=kernel_cache)
    head = build_eagle3_head(decoder, copy.deepcopy(module))
    head.allocate(16)
    # Compared in float32: the kernels keep more of it than torch's bfloat16 does.
    return Case(target.float(), decoder, module.float(), head, 1e-4 if request.param == "torch" else 0.025)


def run(
    head: FeatureHead, tokens: Sequence[int], states: Tensor, start: int = 1, blocks: Sequence[int] = BLOCKS
) -> HeadOutput:
    """tokens at positions from start on; states: of the positions before theirs. All rows' logits."""
    size = len(tokens)
    piece = SequenceSlice(0, size, start, blocks)
    output = head.forward(HeadStep(tokens, range(start, start + size), [piece], range(size), states))
    return HeadOutput(output.logits.clone(), output.hidden.clone())


def inputs(dtype: torch.dtype) -> tuple[list[int], Tensor]:
    """Token ids of positions 1 to LENGTH, and features of positions 0 to LENGTH - 1."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, VOCAB, (LENGTH,), generator=generator).tolist()
    return tokens, (torch.randn(LENGTH, 3 * HIDDEN, generator=generator) * 2).to(dtype)


def expected(case: Case, tokens: Sequence[int], states: Tensor) -> HeadOutput:
    """By the module; states: fused or the head's own hidden states, of the positions before the tokens'."""
    embeddings = case.embeddings(torch.tensor(tokens))
    hidden, logits = case.module(embeddings, states, torch.arange(1, len(tokens) + 1))
    return HeadOutput(logits, hidden)


def assert_close(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    assert ours.shape == theirs.shape
    assert (ours.float() - theirs).norm() <= tolerance * theirs.norm()


@settings(max_examples=10, deadline=None)
@given(cuts=st.lists(st.integers(1, 30), min_size=1, max_size=5).filter(lambda cuts: sum(cuts) <= LENGTH))
def test_features_give_what_the_module_gives(case: Case, cuts: list[int]) -> None:
    tokens, features = inputs(case.decoder.dtype)
    parts, start = [], 0
    for size in cuts:
        parts.append(run(case.head, tokens[start : start + size], features[start : start + size], start + 1))
        start += size
    theirs = expected(case, tokens[:start], case.module.fuse(features[:start].float()))
    assert_close(torch.cat([part.logits for part in parts]), theirs.logits, case.tolerance)
    assert_close(torch.cat([part.hidden for part in parts]), theirs.hidden, case.tolerance)


@only_native
def test_cuts_and_blocks_do_not_change_the_kernels_results(case: Case) -> None:
    tokens, features = inputs(case.decoder.dtype)
    whole = run(case.head, tokens, features)
    other = [3, 8, 4, 6, 10]
    first = run(case.head, tokens[:33], features[:33], 1, other)
    last = run(case.head, tokens[33:], features[33:], 34, other)
    assert torch.equal(torch.cat((first.logits, last.logits)), whole.logits)


def test_a_draft_feeds_the_head_its_own_states(case: Case) -> None:
    tokens, features = inputs(case.decoder.dtype)
    size = 20
    states = run(case.head, tokens[:size], features[:size]).hidden[-1:]
    theirs_states = case.module.fuse(features[:size].float())
    for token_id in tokens[size : size + 4]:
        ours = run(case.head, [token_id], states, size + 1)
        before = expected(case, tokens[:size], theirs_states)
        theirs_states = torch.cat((theirs_states, before.hidden[-1:]))
        size += 1
        theirs = expected(case, tokens[:size], theirs_states)
        assert_close(ours.logits, theirs.logits[-1:], 2 * case.tolerance)
        states = ours.hidden


def test_several_sequences_and_few_logits(case: Case) -> None:
    tokens, features = inputs(case.decoder.dtype)
    alone = run(case.head, tokens[:30], features[:30])
    slices = [SequenceSlice(0, 30, 1, BLOCKS), SequenceSlice(30, 12, 1, [11, 12])]
    step = HeadStep(
        tokens[:30] + tokens[:12], [*range(1, 31), *range(1, 13)], slices, [29, 41],
        torch.cat((features[:30], features[:12])),
    )  # fmt: skip
    ours = case.head.forward(step)
    assert_close(ours.logits, alone.logits[[29, 11]].float(), case.tolerance / 10)
    assert_close(ours.hidden, alone.hidden[[29, 11]].float(), case.tolerance / 10)


def test_rows_without_logits_leave_the_same_keys_and_values(case: Case) -> None:
    tokens, features = inputs(case.decoder.dtype)
    whole = run(case.head, tokens, features)
    case.head.allocate(16)
    for start, end in ((0, 33), (33, 69)):
        rows = SequenceSlice(0, end - start, start + 1, BLOCKS)
        positions = range(start + 1, end + 1)
        output = case.head.forward(HeadStep(tokens[start:end], positions, [rows], (), features[start:end]))
        assert len(output.logits) == len(output.hidden) == 0
    last = run(case.head, tokens[69:], features[69:], 70)
    assert_close(last.logits, whole.logits[69:].float(), case.tolerance / 10)
    assert_close(last.hidden, whole.hidden[69:].float(), case.tolerance / 10)


@only_native
def test_sizes_that_the_kernels_cannot_cut_are_refused(case: Case) -> None:
    with pytest.raises(UnsupportedModelError, match=r"head_dim is 24.*engine\.compile"):
        build_eagle3_head(case.decoder, Eagle3Head(replace(CONFIG, head_dim=24)))
