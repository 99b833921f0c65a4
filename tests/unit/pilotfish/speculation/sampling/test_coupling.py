import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.coupling import keys_of, pick, pick_rows
from pilotfish.speculation.sampling.logits import process
from pilotfish.speculation.sampling.noise import Stream, gumbel
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.types import SamplingParams


def make_logits(num_rows: int, vocab_size: int, seed: int, spread: float) -> torch.Tensor:
    return (torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * spread).bfloat16()


def make_rows(num_rows: int, seed: int = 0, **fields) -> list[Row]:
    return [Row(SamplingParams(seed=seed + index, **fields), 3 * index, None) for index in range(num_rows)]


def pick_unpruned(distribution, keys) -> torch.Tensor:
    """The definition: the argmax over the whole vocabulary."""
    token_ids = torch.arange(distribution.blocks.vocab_size).unsqueeze(0).expand(len(keys), -1)
    return (distribution.scores_at(token_ids) + gumbel(keys, token_ids)).argmax(-1)


@settings(deadline=None)
@given(
    st.sampled_from([1, 12, 64, 100, 900, 5000]),
    st.sampled_from([0.0, 0.3, 1.0, 4.0]),
    st.sampled_from([{}, {"temperature": 0.4}, {"temperature": 3.0}, {"top_k": 70}, {"top_p": 0.7}, {"min_p": 0.02}]),
    st.integers(0, 2**31),
)
def test_pruned_equals_full(vocab_size, spread, fields, seed):
    rows = make_rows(4, seed, **fields)
    distribution = process(BlockedLogits.of(make_logits(4, vocab_size, seed, spread)), rows)
    keys = keys_of(rows, Stream.COUPLED, torch.device("cpu"))
    assert torch.equal(pick(distribution, keys), pick_unpruned(distribution, keys))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_pick_depends_on_its_row_alone(dtype, num_threads):
    torch.set_num_threads(num_threads)
    logits = make_logits(12, 49_152, 2, 3.0).to(dtype)
    fields = [{"temperature": 1.5}, {"top_k": 40, "top_p": 0.9}, {"top_p": 0.97}, {"min_p": 0.01}]
    rows = [Row(SamplingParams(seed=index, **fields[index % 4]), index, None) for index in range(12)]
    together = pick_rows(process(BlockedLogits.of(logits), rows), rows, Stream.COUPLED)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0)).tolist()
    shuffled = [rows[row] for row in order]
    reordered = pick_rows(process(BlockedLogits.of(logits[order]), shuffled), shuffled, Stream.COUPLED)
    alone = [
        pick_rows(process(BlockedLogits.of(logits[row : row + 1]), rows[row : row + 1]), [rows[row]], Stream.COUPLED)
        for row in range(12)
    ]
    assert torch.equal(reordered, together[order])
    assert torch.equal(torch.cat(alone), together)


def test_noise_does_not_depend_on_the_size_of_the_vocabulary():
    """A drafter's output layer may be padded to another size."""
    logits = make_logits(8, 1000, 4, 2.0).float()
    padded = torch.cat((logits, torch.full((8, 37), -1e4)), 1)
    rows = make_rows(8)
    picks = [
        pick_rows(process(BlockedLogits.of(some), rows), rows, Stream.COUPLED).tolist() for some in (logits, padded)
    ]
    assert picks[0] == picks[1]
