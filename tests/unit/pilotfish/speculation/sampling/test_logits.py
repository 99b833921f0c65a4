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


@pytest.mark.parametrize("temperature", [1e-5, 1e-40, 2.0**-149])
def test_a_tiny_temperature_is_greedy_without_overflow(temperature):
    logits = make_logits(1)
    distribution = processed(logits, SamplingParams(temperature=temperature, top_p=0.9, min_p=0.1))
    dense = distribution.dense_scores()
    assert not dense.isnan().any()
    assert dense.isneginf().sum() == 999
    assert int(dense.argmax()) == int(logits.argmax())
    assert distribution.log_norm().item() == 0


def test_penalties_come_before_bias_and_bias_before_top_k():
    logits = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    sampling = SamplingParams(repetition_penalty=2.0, logit_bias=((3, 2.5), (1, 0.1)), top_k=1)
    # Token 1 is in the history: 3 / 2 + 0.1; token 3 rises to 3.5; token 0 stays 4.
    scores = process(BlockedLogits.of(logits), [Row(sampling, 0, TokenHistory([1], []))]).dense_scores()
    assert scores.isfinite().nonzero()[:, 1].tolist() == [0]
    scores = process(BlockedLogits.of(logits), [Row(sampling, 0, TokenHistory([0, 1], []))]).dense_scores()
    assert scores.isfinite().nonzero()[:, 1].tolist() == [3]
