from __future__ import annotations

import pytest
import torch

from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.history import TokenHistory
from pilotfish.speculation.sampling.logits import Distribution, process
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.types import SamplingParams


def make_logits(num_rows: int, vocab_size: int = 1000) -> torch.Tensor:
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(3)) * 3


def processed(logits: torch.Tensor, *samplings: SamplingParams) -> Distribution:
    return process(BlockedLogits.of(logits), [Row(sampling, 0, TokenHistory([1], [2])) for sampling in samplings])


SAMPLINGS = (
    SamplingParams(temperature=0.5),
    SamplingParams(top_k=20, temperature=2),
    SamplingParams(top_p=0.8),
    SamplingParams(min_p=0.05, presence_penalty=1.0),
)


def test_all_views_of_a_distribution_agree():
    distribution = processed(make_logits(4), *SAMPLINGS)
    dense = distribution.dense_scores()
    everything = torch.arange(1000).expand(4, -1)
    assert torch.allclose(distribution.scores_at(everything).float(), dense, atol=1e-5)
    assert torch.allclose(distribution.log_norm(), dense.double().logsumexp(-1, keepdim=True), atol=1e-5)
    blocks = torch.nn.functional.pad(dense, (0, 24), value=-torch.inf).view(4, -1, 64).amax(-1)
    assert (distribution.block_bounds() >= blocks - 1e-5).all()
    assert (dense.amax(-1) == 0).all()


def test_select_equals_processing_the_rows_alone():
    logits = make_logits(4)
    chosen = processed(logits, *SAMPLINGS).select([2, 1])
    alone = processed(logits[[2, 1]], SAMPLINGS[2], SAMPLINGS[1])
    assert torch.equal(chosen.dense_scores(), alone.dense_scores())


@pytest.mark.parametrize("temperature", [1e-5, 1e-40, 2.0**-149])
def test_a_tiny_temperature_is_greedy_without_overflow(temperature):
    logits = make_logits(1)
    distribution = processed(logits, SamplingParams(temperature=temperature, top_p=0.9, min_p=0.1))
    dense = distribution.dense_scores()
    assert not dense.isnan().any()
    assert dense.isneginf().sum() == 999
    assert int(dense.argmax()) == int(logits.argmax())
    assert distribution.log_norm().item() == 0


def test_a_bias_of_minus_100_forbids_a_token():
    logits = make_logits(1)
    best = int(logits.argmax())
    distribution = processed(logits, SamplingParams(logit_bias=((best, -100.0),)))
    probs = distribution.scores_at(torch.tensor([[best]])) - distribution.log_norm()
    assert probs.exp().item() < 1e-30


def test_penalties_come_before_bias_and_bias_before_top_k():
    logits = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    sampling = SamplingParams(repetition_penalty=2.0, logit_bias=((3, 2.5), (1, 0.1)), top_k=1)
    # Token 1 is in the history: 3 / 2 + 0.1; token 3 rises to 3.5; token 0 stays 4.
    scores = process(BlockedLogits.of(logits), [Row(sampling, 0, TokenHistory([1], []))]).dense_scores()
    assert scores.isfinite().nonzero()[:, 1].tolist() == [0]
    scores = process(BlockedLogits.of(logits), [Row(sampling, 0, TokenHistory([0, 1], []))]).dense_scores()
    assert scores.isfinite().nonzero()[:, 1].tolist() == [3]
