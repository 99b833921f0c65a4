import numpy as np
import pytest
import torch
from scipy import stats

from pilotfish.speculation.sampling.noise import Stream, gumbel, row_keys, uniform

CPU = torch.device("cpu")
MAX_SEED = 2**64 - 1


def keys(seeds, positions, stream=Stream.COUPLED):
    return row_keys(seeds, positions, stream, CPU)


def test_gumbel_is_standard_gumbel_over_tokens_and_positions_and_seeds():
    by_token = gumbel(keys([1], [5]), torch.arange(20_000).unsqueeze(0)).ravel()
    by_position = gumbel(keys([1] * 20_000, range(20_000)), torch.tensor([[77]])).ravel()
    by_seed = gumbel(keys(range(20_000), [5] * 20_000), torch.tensor([[77]])).ravel()
    for sample in (by_token, by_position, by_seed):
        assert stats.kstest(sample.numpy(), stats.gumbel_r.cdf).pvalue > 1e-3


def test_uniforms_of_one_key_are_independent_and_do_not_depend_on_their_count():
    sample = uniform(keys(range(20_000), [0] * 20_000), 3)
    assert torch.equal(uniform(keys([5], [0]), 2)[0], sample[5, :2])
    assert np.abs(np.corrcoef(sample.numpy().T) - np.eye(3)).max() < 0.03
    assert 0 < sample.min() < sample.max() < 1
    for column in sample.T:
        assert stats.kstest(column.numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    "neighbour",
    [
        lambda n: (keys(range(n), [9] * n), keys(range(1, n + 1), [9] * n)),
        lambda n: (keys([3] * n, range(n)), keys([3] * n, range(1, n + 1))),
        lambda n: (keys(range(n), range(n)), keys(range(1, n + 1), range(-1, n - 1))),
        lambda n: (keys(range(n), [9] * n), keys(range(n), [9] * n, Stream.DRAFT)),
    ],
    ids=["seeds", "positions", "both", "streams"],
)
def test_neighbours_are_independent(neighbour):
    one, other = (gumbel(row, torch.tensor([[4, 5, 64]])).numpy() for row in neighbour(20_000))
    for token in range(3):
        for other_token in range(3):
            assert abs(stats.spearmanr(one[:, token], other[:, other_token]).statistic) < 0.03


def test_tokens_of_a_block_are_independent():
    noise = gumbel(keys([0] * 20_000, range(20_000)), torch.arange(4).unsqueeze(0)).numpy()
    ranks = stats.spearmanr(noise).statistic
    assert np.abs(ranks - np.eye(4)).max() < 0.03
    # The winner is uniform over a block and its neighbours: no place is favoured.
    wide = gumbel(keys([1] * 20_000, range(20_000)), torch.arange(96).unsqueeze(0))
    assert stats.chisquare(torch.bincount(wide.argmax(-1), minlength=96).numpy()).pvalue > 1e-3


def test_noise_is_bit_identical_for_any_subset_order_and_number_of_rows():
    rows = keys([7, MAX_SEED, 0], [0, 2**31, 4])
    full = gumbel(rows, torch.arange(5000).unsqueeze(0))
    subset = torch.randperm(5000, generator=torch.Generator().manual_seed(0))[:777]
    assert torch.equal(gumbel(rows, subset.unsqueeze(0)), full[:, subset])
    assert torch.equal(gumbel(rows[1:2], subset[:3].unsqueeze(0)), full[1:2, subset[:3]])


def test_noise_stays_what_it_was():
    """Seeds must give the same text in every version and on every machine."""
    noise = gumbel(keys([42], [7]), torch.tensor([[0, 1, 63, 64, 151_000]]))
    assert noise.tolist() == [
        [1.2841510772705078, 1.0509239435195923, -1.3645292520523071, 2.885996103286743, 2.1585142612457275]
    ]
