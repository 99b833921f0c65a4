"""Both decoders against transformers' own forward, over random cuts, blocks and neighbours."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import MistralConfig, MistralForCausalLM, PreTrainedModel

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import Decoder, StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.determinism import blocks_needed, is_batch_invariant
from pilotfish.models.native.decoder import NativeDecoder
from pilotfish.models.native.layout import unsupported_reason
from tests.support.native_kernels import NamedKernels, compiled_for
from tests.support.tiny_models import SIZES, tiny_model

VOCAB = SIZES["vocab_size"]


def own_logits(model: PreTrainedModel, tokens: Sequence[int]) -> Tensor:
    return model(torch.tensor([list(tokens)])).logits[0].float()


def run_in_pieces(decoder: Decoder, tokens: Sequence[int], cuts: Sequence[int], blocks: Sequence[int]) -> Tensor:
    logits, start = [], 0
    for size in cuts:
        piece = SequenceSlice(0, size, start, blocks)
        rows = StepInput(tokens[start : start + size], range(start, start + size), [piece], range(size))
        logits.append(decoder.forward(rows).float().clone())
        start += size
    return torch.cat(logits)


@st.composite
def pieces(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """Tokens, how they are cut, and where their blocks lie."""
    cuts = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    tokens = draw(st.lists(st.integers(0, VOCAB - 1), min_size=sum(cuts), max_size=sum(cuts)))
    blocks = draw(st.permutations(range(1, 16)))
    return tokens, cuts, blocks[: sum(cuts) // 16 + 1]


@pytest.fixture(
    scope="module",
    params=[*("llama", "llama3-rope", "qwen2", "qwen3", "mistral", "gemma3", "gpt_oss"), *("gpt2", "phi3", "stablelm")],
)
def transformers_pair(request: pytest.FixtureRequest) -> tuple[PreTrainedModel, Decoder]:
    model = tiny_model(request.param, torch.float32)
    decoder = TransformersDecoder(copy.deepcopy(model), deterministic=False, max_context_tokens=256)
    decoder.allocate(16)
    return model, decoder


@settings(max_examples=8, deadline=None)
@given(case=pieces(), data=st.data())
def test_rejected_drafts_leave_no_trace(
    transformers_pair: tuple[PreTrainedModel, Decoder],
    case: tuple[list[int], list[int], list[int]],
    data: st.DataObject,
) -> None:
    """Each step carries drafts behind its tokens; rolled back, their slots are written again by the next."""
    model, decoder = transformers_pair
    tokens, cuts, blocks = case
    room = len(blocks) * 16
    logits, start = [], 0
    for size in cuts:
        most = min(8, room - start - size)
        drafts = data.draw(st.lists(st.integers(0, VOCAB - 1), max_size=most), label="drafts")
        rows = [*tokens[start : start + size], *drafts]
        piece = SequenceSlice(0, len(rows), start, blocks)
        step = StepInput(rows, range(start, start + len(rows)), [piece], range(len(rows)))
        verified = decoder.forward(step).float().clone()
        theirs = own_logits(model, [*tokens[: start + size], *drafts])[start:]
        assert (verified - theirs).abs().max() < 1e-3
        assert torch.equal(verified.argmax(-1), theirs.argmax(-1))
        logits.append(verified[:size])
        start += size
    assert (torch.cat(logits) - own_logits(model, tokens)).abs().max() < 1e-3


@pytest.fixture
def uninitialised_memory_is_nan() -> Iterator[None]:
    """torch.empty gives NaN instead of whatever lay there, which is mostly harmless zeros."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("uninitialised_memory_is_nan")
def test_padding_rows_poison_nothing(transformers_pair: tuple[PreTrainedModel, Decoder]) -> None:
    """A lone row pads its step; sequences of unlike length, in one step, then pad their tables with block 0."""
    model, decoder = transformers_pair
    decoder.allocate(16)
    prompts, blocks = [[7] * 42, [9, 2, 6] * 20], [[1, 2, 3], [4, 5, 6, 7]]
    for prompt, table in zip(prompts, blocks, strict=True):
        run_in_pieces(decoder, prompt[:-1], [len(prompt) - 1], table)
    slices = [SequenceSlice(row, 1, len(prompts[row]) - 1, blocks[row]) for row in range(2)]
    step = StepInput([prompt[-1] for prompt in prompts], [41, 59], slices, [0, 1])
    decoder.forward(step)  # two rows of padding: what they write to block 0 is read by the next
    ours = decoder.forward(step)
    theirs = torch.stack([own_logits(model, prompt)[-1] for prompt in prompts])
    assert (ours - theirs).abs().max() < 1e-3


def test_several_sequences_in_one_step(transformers_pair: tuple[PreTrainedModel, Decoder]) -> None:
    model, decoder = transformers_pair
    prompts = [[3, 1, 4, 1, 5] * 5, [9, 2, 6], [5, 3, 5, 8, 9, 7, 9] * 3]
    blocks = [[5, 2], [9], [1, 12]]
    run_in_pieces(decoder, prompts[0][:24], [24], blocks[0])  # the first decodes, the others prefill
    rows, positions, slices, start = [], [], [], 0
    for prompt, table, done in zip(prompts, blocks, [24, 0, 0], strict=True):
        rows += prompt[done:]
        positions += range(done, len(prompt))
        slices.append(SequenceSlice(start, len(prompt) - done, done, table))
        start += len(prompt) - done
    ends = [part.first_row + part.num_rows - 1 for part in slices]
    ours = decoder.forward(StepInput(rows, positions, slices, ends))
    theirs = torch.stack([own_logits(model, prompt)[-1] for prompt in prompts])
    assert (ours - theirs).abs().max() < 1e-3


@pytest.fixture(scope="module", params=["llama", "llama3-rope", "qwen2", "qwen3", "mistral"])
def native_pair(
    request: pytest.FixtureRequest, kernel_cache: Path, kernels: NamedKernels
) -> tuple[PreTrainedModel, NativeDecoder]:
    model = tiny_model(request.param, torch.bfloat16)
    assert unsupported_reason(model) is None
    with compiled_for(kernels) as named:
        decoder = NativeDecoder(
            copy.deepcopy(model), max_context_tokens=256, num_threads=2, cache_dir=kernel_cache, kernels=named
        )
    decoder.allocate(blocks_needed())
    return model, decoder


def test_native_kernels_are_closer_to_float32_than_transformers_in_bfloat16(
    native_pair: tuple[PreTrainedModel, NativeDecoder],
) -> None:
    model, decoder = native_pair
    tokens = torch.randint(0, VOCAB, (150,), generator=torch.Generator().manual_seed(1)).tolist()
    ours = run_in_pieces(decoder, tokens, [1, 7, 90, 52], [11, 3, 5, 9, 1, 2, 8, 4, 10, 6])
    exact = own_logits(copy.deepcopy(model).float(), tokens)
    error, their_error = (ours - exact).abs(), (own_logits(model, tokens) - exact).abs()
    assert error.mean() < their_error.mean()
    assert error.max() < 2 * their_error.max()


def test_native_kernels_are_batch_invariant(native_pair: tuple[PreTrainedModel, NativeDecoder]) -> None:
    assert is_batch_invariant(native_pair[1])


@pytest.mark.parametrize("num_kv_heads", [1, 2])
@pytest.mark.parametrize(
    ("group", "head_dim"), [(1, 16), (2, 128), (3, 64), (4, 48), (5, 32), (6, 16), (7, 80), (8, 112)]
)
def test_native_kernels_know_every_head_geometry(
    kernel_cache: Path, num_kv_heads: int, group: int, head_dim: int
) -> None:
    torch.manual_seed(2)
    heads = {"num_attention_heads": group * num_kv_heads, "num_key_value_heads": num_kv_heads, "head_dim": head_dim}
    config = MistralConfig(**{**SIZES, **heads, "num_hidden_layers": 2}, sliding_window=20)
    model = MistralForCausalLM(config).to(torch.bfloat16).eval().requires_grad_(False)
    if (reason := unsupported_reason(model)) is not None:
        assert (group + 2) * num_kv_heads * head_dim % 32, reason
        return
    decoder = NativeDecoder(copy.deepcopy(model), max_context_tokens=256, num_threads=2, cache_dir=kernel_cache)
    decoder.allocate(blocks_needed())
    tokens = torch.randint(0, VOCAB, (60,), generator=torch.Generator().manual_seed(1)).tolist()
    ours = run_in_pieces(decoder, tokens, [1, 33, 5, 21], [7, 3, 5, 9])
    exact = own_logits(copy.deepcopy(model).float(), tokens)
    their_error = (own_logits(model, tokens) - exact).abs()
    assert (ours - exact).abs().mean() < 1.1 * their_error.mean()
    assert is_batch_invariant(decoder)


class Recording:
    """A decoder that only remembers the positions it was asked for."""

    vocab_size = VOCAB

    def __init__(self, max_context_tokens: int) -> None:
        self.max_context_tokens = max_context_tokens
        self.positions: set[int] = set()

    def forward(self, step: StepInput) -> Tensor:
        self.positions.update(step.positions)
        return torch.tensor([[float(step.positions[row])] for row in step.logit_rows])


@pytest.mark.parametrize(("max_context_tokens", "asked"), [(1, 1), (17, 17), (48, 48), (529, 48), (2048, 530)])
def test_the_probe_stays_within_the_context(max_context_tokens: int, asked: int) -> None:
    decoder = Recording(max_context_tokens)
    assert is_batch_invariant(decoder)  # type: ignore[arg-type]
    assert decoder.positions == set(range(asked))


def test_the_probe_notices_a_decoder_that_depends_on_the_batch(
    native_pair: tuple[PreTrainedModel, NativeDecoder],
) -> None:
    decoder = native_pair[1]

    class Leaky:
        vocab_size = decoder.vocab_size
        max_context_tokens = decoder.max_context_tokens

        def forward(self, step: StepInput) -> Tensor:
            return decoder.forward(step) + (1e-6 if len(step.token_ids) > 30 else 0)

    assert not is_batch_invariant(Leaky())  # type: ignore[arg-type]


def test_the_probe_notices_a_decoder_that_takes_trees_for_chains(
    native_pair: tuple[PreTrainedModel, NativeDecoder],
) -> None:
    decoder = native_pair[1]

    class Blind:
        vocab_size = decoder.vocab_size
        max_context_tokens = decoder.max_context_tokens

        def forward(self, step: StepInput) -> Tensor:
            return decoder.forward(
                replace(step, slices=[msgspec.structs.replace(part, tree=None) for part in step.slices])
            )

    assert not is_batch_invariant(Blind())  # type: ignore[arg-type]


def test_native_kernels_say_why_they_cannot_run_a_model() -> None:
    assert "gemma3" in (unsupported_reason(tiny_model("gemma3", torch.bfloat16)) or "")
    assert "bfloat16" in (unsupported_reason(tiny_model("llama", torch.float32)) or "")


def test_packed_linears_keep_bfloat16_results_close() -> None:
    model = tiny_model("gemma3", torch.bfloat16)
    decoder = TransformersDecoder(copy.deepcopy(model), deterministic=True, max_context_tokens=256)
    decoder.allocate(16)
    tokens = [5, 9, 33, 70, 2] * 12
    ours = run_in_pieces(decoder, tokens, [45, 1, 1, 13], [4, 3, 2, 1])
    exact = own_logits(copy.deepcopy(model).float(), tokens)
    assert (ours - exact).abs().mean() < 1.5 * (own_logits(model, tokens) - exact).abs().mean()
