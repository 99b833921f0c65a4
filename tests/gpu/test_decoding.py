"""Steps on a GPU against float32 on the CPU: prefill, decode, verification, trees, rollback; recorded and not."""

import gc
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.speculation.trees.tree import DraftTree

Make = Callable[..., TransformersDecoder]

PROMPTS = [[3, 1, 4, 1, 5] * 5, [9, 2, 6], [5, 3, 5, 8, 9, 7, 9] * 30]
BLOCKS = [[5, 2, 11], [9, 3], list(range(20, 40))]
TREE = DraftTree((-1, -1, 0, 2))


@pytest.fixture(params=[False, True], ids=["eager", "graphs"])
def decoder(request: pytest.FixtureRequest, make_decoder: Make) -> TransformersDecoder:
    """In float32, with the prompts in its cache but for their last tokens."""
    made = make_decoder(graphs=request.param)
    prefill(made)
    return made


def prefill(decoder: TransformersDecoder) -> None:
    for prompt, blocks in zip(PROMPTS, BLOCKS, strict=True):
        size = len(prompt) - 1
        decoder.forward(StepInput(prompt[:-1], range(size), [SequenceSlice(0, size, 0, blocks)], []))


def step_of(parts: Sequence[tuple[int, Sequence[int], DraftTree | None]]) -> StepInput:
    slices: list[SequenceSlice] = []
    tokens: list[int] = []
    for index, drafts, tree in parts:
        slices.append(SequenceSlice(len(tokens), len(drafts) + 1, len(PROMPTS[index]) - 1, BLOCKS[index], tree))
        tokens += [PROMPTS[index][-1], *drafts]
    positions = [position for part in slices for position in part.positions()]
    return StepInput(tokens, positions, slices, range(len(tokens)))


def expected(reference: LlamaForCausalLM, parts: Sequence[tuple[int, Sequence[int], DraftTree | None]]) -> Tensor:
    """transformers' own logits of every row: of each path alone, where there is a tree."""
    rows = []
    for index, drafts, tree in parts:
        prompt, shape = PROMPTS[index], tree or DraftTree.chain(len(drafts))
        for path in shape.paths:
            text = [*prompt, *(drafts[node] for node in path)]
            rows.append(reference(torch.tensor([text])).logits[0, -1])
    return torch.stack(rows)


STEPS = {
    "decode": [(1, [], None)],
    "decode three": [(0, [], None), (1, [], None), (2, [], None)],
    "verify": [(2, [7, 8, 9, 1, 2], None)],
    "unlike lengths": [(0, [7], None), (2, [1, 2, 3], None), (1, [], None)],
    "trees": [(0, [7, 8, 9, 1], TREE), (2, [4, 4], DraftTree((-1, -1)))],
}


@pytest.mark.parametrize("name", STEPS)
def test_logits_equal_the_cpus(decoder: TransformersDecoder, reference: LlamaForCausalLM, name: str) -> None:
    for _ in range(2):
        ours = decoder.forward(step_of(STEPS[name])).cpu()
        theirs = expected(reference, STEPS[name])
        assert (ours - theirs).abs().max() < 1e-3
        assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


def test_prefill_equals_the_cpus(decoder: TransformersDecoder, reference: LlamaForCausalLM) -> None:
    tokens = [(7 * place + 3) % 256 for place in range(300)]
    blocks = list(range(40, 60))
    logits = [
        decoder.forward(
            StepInput(
                tokens[start:end], range(start, end), [SequenceSlice(0, end - start, start, blocks)], range(end - start)
            )
        ).cpu()
        for start, end in ((0, 128), (128, 131), (131, 300))
    ]
    assert (torch.cat(logits) - reference(torch.tensor([tokens])).logits[0]).abs().max() < 1e-3


def test_rollback(decoder: TransformersDecoder, reference: LlamaForCausalLM) -> None:
    """An accepted path moves into place, rejected drafts are written again."""
    at, slot = len(PROMPTS[1]) - 1, BLOCKS[1][0] * 16
    decoder.forward(step_of([(1, [40, 41, 42], DraftTree((-1, -1, 1)))]))
    decoder.move_kv([(slot + at + 2, slot + at + 1), (slot + at + 3, slot + at + 2)])
    ours = decoder.forward(StepInput([17], [at + 3], [SequenceSlice(0, 1, at + 3, BLOCKS[1])], [0]))
    text = [*PROMPTS[1], 41, 42, 17]
    assert (ours.cpu() - reference(torch.tensor([text])).logits[0, -1]).abs().max() < 1e-3


def test_graphs_equal_eager_steps(make_decoder: Make) -> None:
    """In bfloat16, where the sizes of the products, padding included, choose kernels that round otherwise."""
    recorded, plain = (make_decoder(torch.bfloat16, graphs=True), make_decoder(torch.bfloat16))
    for decoder in (recorded, plain):
        prefill(decoder)
    for parts in STEPS.values():
        ours, theirs = (decoder.forward(step_of(parts)).float() for decoder in (recorded, plain))
        assert (ours - theirs).norm() / theirs.norm() < 0.02


def test_a_step_never_waits_for_the_device(decoder: TransformersDecoder, no_waiting: None) -> None:
    for parts in STEPS.values():
        decoder.forward(step_of(parts))


def test_the_kernels_equal_sdpa(make_decoder: Make) -> None:
    ours, theirs = make_decoder(torch.bfloat16), make_decoder(torch.bfloat16, attention="sdpa")
    for decoder in (ours, theirs):
        prefill(decoder)
    for parts in STEPS.values():
        first, second = (decoder.forward(step_of(parts)).float() for decoder in (ours, theirs))
        assert (first - second).norm() / second.norm() < 0.02


def test_memory_is_given_back(make_decoder: Make, device: torch.device) -> None:
    make_decoder(graphs=True).forward(step_of([(1, [], None)]))
    before = allocated(device)
    decoder = make_decoder(graphs=True)
    assert torch.cuda.memory_allocated(device) > before + (4 << 20)
    del decoder
    assert allocated(device) <= before + (1 << 20)


def allocated(device: torch.device) -> int:
    """Bytes in use, without what waits to be collected and what libraries keep for each stream."""
    gc.collect()
    torch.cuda.synchronize(device)
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated(device)
