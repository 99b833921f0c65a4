from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.speculation.sampling.blocks import BlockedLogits, block_sums


def coarse_logits(num_rows: int, vocab_size: int, seed: int = 0) -> torch.Tensor:
    """Many equal values."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-6, 7, (num_rows, vocab_size), generator=generator).float()


def by_definition(row: torch.Tensor) -> list[int]:
    return sorted(range(len(row)), key=lambda token_id: (-row[token_id].item(), token_id))


@given(
    st.integers(1, 700), st.integers(1, 3), st.integers(1, 80), st.integers(0, 2**31), st.sampled_from([0.0, 0.3, 1.0])
)
def test_rank_orders_by_logit_then_id(vocab_size, num_rows, k, seed, noise):
    logits = coarse_logits(num_rows, vocab_size, seed)
    logits += noise * torch.randn(logits.shape, generator=torch.Generator().manual_seed(seed))
    values, token_ids = BlockedLogits.of(logits).rank(k)
    for row in range(num_rows):
        assert token_ids[row].tolist() == by_definition(logits[row])[:k]
        assert torch.equal(values[row], logits[row, token_ids[row]])


def test_negative_zero_ties_with_zero():
    logits = torch.tensor([[-0.0, 0.0, -1.0, -0.0]])
    assert BlockedLogits.of(logits).rank(3)[1].tolist() == [[0, 1, 3]]


@pytest.mark.parametrize("vocab_size", [1, 16, 64, 65, 128, 1000])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_argmax_is_the_first_greatest(vocab_size, dtype):
    logits = coarse_logits(20, vocab_size).to(dtype)
    expected = [by_definition(row)[0] for row in logits]
    assert BlockedLogits.of(logits).argmax().tolist() == expected


@pytest.mark.parametrize("num_threads", [1, 2])
def test_block_sums_do_not_depend_on_the_number_of_rows(num_threads):
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        values = torch.rand(9, 49_152, generator=torch.Generator().manual_seed(0)).exp()
        together = block_sums(values)
        alone = torch.cat([block_sums(values[row : row + 1]) for row in range(9)])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(together, alone)
    assert torch.allclose(together, values.double().sum(-1, keepdim=True), rtol=1e-6)
