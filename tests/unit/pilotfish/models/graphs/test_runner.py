"""Recorded steps give what the same steps give that are not recorded: padding and replays change nothing."""

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import MistralConfig, MistralForCausalLM

from pilotfish.models.attention.paged import SequenceSlice
from pilotfish.models.decoder import StepInput
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.graphs.runner import MAX_ROWS, recorded_sizes
from pilotfish.speculation.trees.tree import DraftTree

SIZES = (1, 4, 8)
PROMPTS = [[3, 1, 4, 1, 5] * 5, [9, 2, 6], [5, 3, 5, 8, 9, 7, 9] * 3]
BLOCKS = [[5, 2, 11], [9, 3], [1, 12, 7]]

Make = Callable[..., TransformersDecoder]


@pytest.fixture
def pair(make_decoder: Make) -> tuple[TransformersDecoder, TransformersDecoder]:
    """A decoder that records and one that does not, with the prompts' last tokens still to come."""
    recorded, plain = make_decoder(SIZES), make_decoder()
    recorded.record_graphs()
    prefill(recorded, plain)
    return recorded, plain


def prefill(*decoders: TransformersDecoder) -> None:
    for prompt, blocks in zip(PROMPTS, BLOCKS, strict=True):
        size = len(prompt) - 1
        for decoder in decoders:
            decoder.forward(StepInput(prompt[:-1], range(size), [SequenceSlice(0, size, 0, blocks)], []))


def step_of(parts: Sequence[tuple[int, Sequence[int], DraftTree | None]], **kwargs: Any) -> StepInput:
    """For each (sequence, tokens behind its prompt's last, their tree) the last token and those."""
    slices: list[SequenceSlice] = []
    tokens: list[int] = []
    for index, drafts, tree in parts:
        slices.append(SequenceSlice(len(tokens), len(drafts) + 1, len(PROMPTS[index]) - 1, BLOCKS[index], tree))
        tokens += [PROMPTS[index][-1], *drafts]
    positions = [position for part in slices for position in part.positions()]
    return StepInput(tokens, positions, slices, kwargs.pop("logit_rows", range(len(tokens))), **kwargs)


def close(ours: Tensor, theirs: Tensor) -> bool:
    return ours.shape == theirs.shape and bool(((ours - theirs).abs() < 1e-4).all())


STEPS = {
    "decode": step_of([(1, [], None)]),
    "decode three": step_of([(0, [], None), (1, [], None), (2, [], None)]),
    "verify": step_of([(0, [7, 8, 9, 1, 2], None)]),
    "unlike lengths": step_of([(0, [7], None), (2, [1, 2, 3], None), (1, [], None)]),
    "some logits": step_of([(0, [7, 3], None), (2, [], None)], logit_rows=[2, 3]),
    "no logits": step_of([(0, [7, 3], None)], logit_rows=[]),
    "tree": step_of([(0, [7, 8, 9, 1], DraftTree((-1, -1, 0, 2))), (1, [4, 4], DraftTree((-1, -1)))]),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_replayed_step_equals_a_plain_one(
    pair: tuple[TransformersDecoder, TransformersDecoder], recorder: Any, name: str
) -> None:
    recorded, plain = pair
    other = STEPS["verify" if name != "verify" else "tree"]
    assert recorder.num_recorded == len(SIZES)
    for step in (STEPS[name], other, STEPS[name]):  # what another step leaves in the buffers is not seen
        assert close(recorded.forward(step).clone(), plain.forward(step))
    assert recorder.num_recorded == len(SIZES)


def test_rollback_over_replayed_steps(pair: tuple[TransformersDecoder, TransformersDecoder]) -> None:
    """Rejected drafts are written again, an accepted path moves into place, and decoding goes on."""
    recorded, plain = pair
    tree = DraftTree((-1, -1, 1))
    at = len(PROMPTS[1]) - 1  # all in the first block
    slot = BLOCKS[1][0] * 16
    for decoder in pair:
        decoder.forward(step_of([(1, [40, 41, 42], tree)]))
        decoder.move_kv([(slot + at + 2, slot + at + 1), (slot + at + 3, slot + at + 2)])
    after = StepInput([17], [at + 3], [SequenceSlice(0, 1, at + 3, BLOCKS[1])], [0])
    ours = recorded.forward(after).clone()
    assert close(ours, plain.forward(after))
    plain.forward(step_of([(1, [41, 42, 17], None)]))
    assert close(ours, plain.forward(after))


def test_many_random_steps(pair: tuple[TransformersDecoder, TransformersDecoder]) -> None:
    recorded, plain = pair
    chooser = random.Random(11)
    for _ in range(12):
        members = chooser.sample(range(3), chooser.randint(1, 3))
        drafts = [[chooser.randrange(64) for _ in range(chooser.randint(0, 5))] for _ in members]
        step = step_of([(index, tokens, None) for index, tokens in zip(members, drafts, strict=True)])
        assert close(recorded.forward(step).clone(), plain.forward(step))


def test_captured_states_are_those_of_the_steps_rows(make_decoder: Make) -> None:
    recorded, plain = make_decoder(SIZES), make_decoder()
    for decoder in (recorded, plain):
        decoder.capture((0, 2))
    recorded.record_graphs()
    prefill(recorded, plain)
    for step in (STEPS["unlike lengths"], STEPS["verify"]):
        assert close(recorded.forward(step).clone(), plain.forward(step))
        assert close(recorded.features, plain.features)
        assert close(recorded.last_hidden, plain.last_hidden)


def test_what_fits_no_shape_runs_as_ever(make_decoder: Make, recorder: Any) -> None:
    recorded, plain = make_decoder(SIZES), make_decoder()
    assert recorder.num_recorded == 0  # nothing before record_graphs
    recorded.record_graphs()
    step = StepInput([3] * 40, range(40), [SequenceSlice(0, 40, 0, [3, 4, 5])], range(40))
    assert close(recorded.forward(step), plain.forward(step))


def test_after_a_new_pool_nothing_reads_the_old_one(make_decoder: Make) -> None:
    recorded, plain = make_decoder(SIZES), make_decoder()
    old = recorded.allocate(40)
    recorded.record_graphs()
    recorded.allocate(40)
    for tensor in old.tensors:
        tensor.fill_(float("nan"))
    prefill(recorded, plain)
    assert close(recorded.forward(STEPS["verify"]).clone(), plain.forward(STEPS["verify"]))
    recorded.record_graphs()
    assert close(recorded.forward(STEPS["verify"]).clone(), plain.forward(STEPS["verify"]))


def test_recording_writes_to_no_ones_blocks(make_decoder: Make) -> None:
    decoder = make_decoder(SIZES)
    pool = decoder.allocate(40)
    decoder.record_graphs()
    for tensor in pool.tensors:
        assert not tensor[16:].any()
        assert tensor[:16].isfinite().all()


def test_sliding_windows(make_decoder: Make) -> None:
    torch.manual_seed(1)
    config = MistralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        sliding_window=64,
    )
    model = MistralForCausalLM(config).eval().requires_grad_(False)
    recorded, plain = make_decoder(SIZES, model), make_decoder((), model)
    recorded.record_graphs()
    prefill(recorded, plain)
    for step in STEPS.values():
        assert close(recorded.forward(step).clone(), plain.forward(step))


def test_padding_stays_finite_whatever_lies_in_block_0(pair: tuple[TransformersDecoder, TransformersDecoder]) -> None:
    recorded, plain = pair
    for _ in range(3):  # each step reads what the padding of the one before has written
        assert recorded.forward(STEPS["unlike lengths"]).isfinite().all()
    assert close(recorded.forward(STEPS["decode"]).clone(), plain.forward(STEPS["decode"]))


def test_more_sequences_than_were_counted_on_run_as_ever(make_decoder: Make) -> None:
    recorded, plain = make_decoder(SIZES), make_decoder()
    recorded.record_graphs()
    step = StepInput([3] * 6, [0] * 6, [SequenceSlice(row, 1, 0, [row + 1]) for row in range(6)], range(6))
    assert close(recorded.forward(step), plain.forward(step))


def test_sizes_waste_at_most_half_of_a_step() -> None:
    sizes = recorded_sizes()
    assert sizes[0] == 1
    assert sizes[-1] == MAX_ROWS
    assert all(small < large <= 2 * small for small, large in itertools.pairwise(sizes))
