"""A tree's node has the logits that its path would have, decoded token by token: to the bit, where promised."""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import Decoder, StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.determinism import is_batch_invariant
from pilotfish.models.native.decoder import NativeDecoder
from pilotfish.speculation.trees.tree import MAX_TREE_NODES, DraftTree
from pilotfish.types import BLOCK_SIZE
from tests.support.native_kernels import KERNELS_HERE, NamedKernels, compiled_for
from tests.support.tiny_models import tiny_model

VOCAB = 96
SIZES = {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6, "head_dim": 48}
NUM_BLOCKS = 80
TREE_BLOCKS = [7, 3, 21, 14, 2, 9, 30, 5, 11, 40, 23, 6]
CHAIN_BLOCKS = [8, 4, 22, 15, 1, 10, 31, 16, 12, 41, 24, 17]
KINDS = ("llama", "qwen3", "mistral", "gemma3", "gpt2", "phi3", "stablelm")


def tiny(kind: str, dtype: torch.dtype) -> PreTrainedModel:
    return tiny_model(kind, dtype, sliding_window=7 if kind == "mistral" else 20, **SIZES)


class Case:
    """A random text, a random tree behind it, and where both begin."""

    def __init__(self, seed: int, max_nodes: int = 24) -> None:
        generator = random.Random(seed)
        self.text = [generator.randrange(VOCAB) for _ in range(generator.randint(1, 70))]
        num_nodes = generator.randint(1, max_nodes)
        reach = generator.choice((1, 3, 100))  # 1 makes a chain, 3 a narrow tree
        self.tree = DraftTree(tuple(generator.randint(max(-1, node - reach), node - 1) for node in range(num_nodes)))
        self.drafts = [generator.randrange(VOCAB) for _ in range(num_nodes)]
        self.num_prefilled = generator.randint(0, len(self.text) - 1)
        """The rest of the text is in the tree's own step."""

    @property
    def root(self) -> int:
        return len(self.text) - 1

    def prefill(self, decoder: Decoder, blocks: Sequence[int]) -> None:
        run(decoder, self.text[: self.num_prefilled], 0, blocks)

    def tree_step(self, first_row: int = 0, blocks: Sequence[int] = TREE_BLOCKS) -> tuple[list[int], SequenceSlice]:
        rows = [*self.text[self.num_prefilled :], *self.drafts]
        return rows, SequenceSlice(first_row, len(rows), self.num_prefilled, blocks, self.tree)

    def path_tokens(self, node: int) -> list[int]:
        return [self.drafts[ancestor] for ancestor in self.tree.paths[node + 1]]


def run(decoder: Decoder, tokens: Sequence[int], start: int, blocks: Sequence[int]) -> Tensor:
    """Logits of a text's rows from position `start` on."""
    if not tokens:
        return torch.empty(0, decoder.vocab_size)
    piece = SequenceSlice(0, len(tokens), start, blocks)
    step = StepInput(tokens, range(start, start + len(tokens)), [piece], range(len(tokens)))
    return decoder.forward(step).float().clone()


def run_tree(decoder: Decoder, case: Case) -> Tensor:
    """Logits of the root and then each node, [1 + N, V]."""
    case.prefill(decoder, TREE_BLOCKS)
    rows, part = case.tree_step()
    wanted = range(len(rows) - len(case.tree) - 1, len(rows))
    return decoder.forward(StepInput(rows, part.positions(), [part], wanted)).float().clone()


def run_paths(decoder: Decoder, case: Case) -> Tensor:
    """As run_tree, each path to a leaf decoded as a text of its own."""
    root = run(decoder, case.text, 0, CHAIN_BLOCKS)[-1]
    logits: list[Tensor] = [root] * (len(case.tree) + 1)
    for leaf in (node for node in range(len(case.tree)) if not case.tree.children[node + 1]):
        rows = run(decoder, case.path_tokens(leaf), len(case.text), CHAIN_BLOCKS)
        for node, row in zip(case.tree.paths[leaf + 1], rows, strict=True):
            logits[node + 1] = row
    return torch.stack(logits)


@pytest.fixture(scope="module", params=KINDS)
def float32_decoder(request: pytest.FixtureRequest) -> Decoder:
    decoder = TransformersDecoder(tiny(request.param, torch.float32), deterministic=False, max_context_tokens=256)
    decoder.allocate(NUM_BLOCKS)
    return decoder


NATIVE = [("native", kind, kernels) for kernels in KERNELS_HERE for kind in KINDS[:3]]
SDPA: list[tuple[str, str, NamedKernels]] = [("sdpa", kind, "auto") for kind in ("llama", "gemma3")]


@pytest.fixture(scope="module", params=[*NATIVE, *SDPA], ids=" ".join)
def exact_decoder(request: pytest.FixtureRequest, kernel_cache: Path) -> Decoder:
    """Decoders whose logits do not depend on how tokens are cut into steps."""
    implementation, kind, kernels = request.param
    model = tiny(kind, torch.bfloat16)
    decoder: Decoder
    if implementation == "native":
        with compiled_for(kernels) as named:
            decoder = NativeDecoder(model, max_context_tokens=256, num_threads=1, cache_dir=kernel_cache, kernels=named)
    else:
        decoder = TransformersDecoder(model, deterministic=True, max_context_tokens=256)
    decoder.allocate(NUM_BLOCKS)
    if not is_batch_invariant(decoder):
        pytest.skip("this machine's torch rounds by the batch")
    return decoder


@pytest.mark.parametrize("seed", range(4))
def test_a_tree_step_equals_its_paths(float32_decoder: Decoder, seed: int) -> None:
    case = Case(seed)
    ours, theirs = run_tree(float32_decoder, case), run_paths(float32_decoder, case)
    assert (ours - theirs).abs().max() < 1e-3
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))


@pytest.mark.parametrize("seed", range(4))
def test_a_tree_step_equals_its_paths_to_the_bit(exact_decoder: Decoder, seed: int) -> None:
    case = Case(seed, max_nodes=MAX_TREE_NODES if seed % 4 == 0 else 24)
    assert torch.equal(run_tree(exact_decoder, case), run_paths(exact_decoder, case))


@pytest.mark.parametrize("seed", range(3))
def test_a_tree_grown_level_by_level_equals_the_whole(exact_decoder: Decoder, seed: int) -> None:
    """A drafter's way: a step for each level, the nodes before it in the cache."""
    case = Case(seed)
    order = sorted(range(len(case.tree)), key=case.tree.depths.__getitem__)
    case.drafts = [case.drafts[node] for node in order]
    new_index = {-1: -1} | {node: index for index, node in enumerate(order)}
    case.tree = DraftTree(tuple(new_index[case.tree.parents[node]] for node in order))
    whole = run_tree(exact_decoder, case)
    run(exact_decoder, case.text, 0, TREE_BLOCKS)
    logits = [whole[:1]]
    for depth in range(1, case.tree.depth + 1):
        level = [node for node, at in enumerate(case.tree.depths) if at == depth]
        grown = DraftTree(case.tree.parents[: level[-1] + 1])
        part = SequenceSlice(0, len(level), len(case.text) + level[0], TREE_BLOCKS, grown)
        assert part.positions() == [case.root + depth] * len(level)
        step = StepInput([case.drafts[node] for node in level], part.positions(), [part], range(len(level)))
        logits.append(exact_decoder.forward(step).float().clone())
    assert torch.equal(torch.cat(logits), whole)


@pytest.mark.parametrize("seed", range(2))
def test_neighbours_do_not_matter(exact_decoder: Decoder, seed: int) -> None:
    """A tree, a chain and another tree in one step."""
    cases = [Case(seed), Case(seed + 100), Case(seed + 200, max_nodes=5)]
    cases[1].tree = DraftTree.chain(len(cases[1].drafts))
    tables = [TREE_BLOCKS, CHAIN_BLOCKS, list(range(50, 62))]
    alone = [run_tree(exact_decoder, case) for case in cases]
    rows: list[int] = []
    slices: list[SequenceSlice] = []
    wanted: list[int] = []
    for case, table in zip(cases, tables, strict=True):
        case.prefill(exact_decoder, table)
        new_rows, part = case.tree_step(len(rows), table)
        rows += new_rows
        slices.append(part)
        wanted += range(len(rows) - len(case.tree) - 1, len(rows))
    positions = [position for part in slices for position in part.positions()]
    together = exact_decoder.forward(StepInput(rows, positions, slices, wanted)).float()
    assert torch.equal(together, torch.cat(alone))


@pytest.mark.parametrize("seed", range(3))
def test_an_accepted_path_moves_into_place(exact_decoder: Decoder, seed: int) -> None:
    """After the move the cache is that of the text with the path in it."""
    case = Case(seed)
    run_tree(exact_decoder, case)
    node = max(range(len(case.tree)), key=lambda n: (case.tree.depths[n], n))
    path = case.tree.paths[node + 1]
    text = [*case.text, *case.path_tokens(node)]

    def slot(place: int) -> int:
        return TREE_BLOCKS[place // BLOCK_SIZE] * BLOCK_SIZE + place % BLOCK_SIZE

    exact_decoder.move_kv([(slot(len(case.text) + at), slot(len(case.text) + to)) for to, at in enumerate(path)])
    ours = run(exact_decoder, [5, 6], len(text), TREE_BLOCKS)
    assert torch.equal(ours, run(exact_decoder, [*text, 5, 6], 0, CHAIN_BLOCKS)[-2:])


def test_moves_read_everything_before_they_write(exact_decoder: Decoder) -> None:
    run(exact_decoder, list(range(20)), 0, [3, 4])
    before = run(exact_decoder, [7], 20, [3, 4])
    one, other, spare = (4 * BLOCK_SIZE + place for place in (1, 3, 9))
    exact_decoder.move_kv([(one, other), (other, spare)])
    assert not torch.equal(run(exact_decoder, [7], 20, [3, 4]), before)
    exact_decoder.move_kv([(spare, other)])
    exact_decoder.move_kv([])
    assert torch.equal(run(exact_decoder, [7], 20, [3, 4]), before)
