import pytest
import torch

from pilotfish.speculation.sampling.blocks import BlockedLogits, block_sums


def test_negative_zero_ties_with_zero():
    logits = torch.tensor([[-0.0, 0.0, -1.0, -0.0]])
    assert BlockedLogits.of(logits).rank(3)[1].tolist() == [[0, 1, 3]]


@pytest.mark.parametrize("num_threads", [1, 2])
def test_block_sums_do_not_depend_on_the_number_of_rows(num_threads):
    torch.set_num_threads(num_threads)
    values = torch.rand(9, 49_152, generator=torch.Generator().manual_seed(0)).exp()
    together = block_sums(values)
    alone = torch.cat([block_sums(values[row : row + 1]) for row in range(9)])
    assert torch.equal(together, alone)
    assert torch.allclose(together, values.double().sum(-1, keepdim=True), rtol=1e-6)
