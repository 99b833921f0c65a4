import pytest
import torch

from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.logprobs import token_logprobs


def test_each_row_gets_as_many_as_it_asked_for():
    logits = torch.randn(3, 300, generator=torch.Generator().manual_seed(0)) * 5
    expected = logits.double().log_softmax(-1)
    found = token_logprobs(BlockedLogits.of(logits), [10, 20, 299], [0, 5, 20])
    for row, (logprobs, token_id, num) in enumerate(zip(found, [10, 20, 299], [0, 5, 20], strict=True)):
        assert logprobs.logprob == pytest.approx(expected[row, token_id].item(), abs=1e-5)
        top = expected[row].topk(num)
        assert list(logprobs.top_token_ids) == top.indices.tolist()
        assert list(logprobs.top_logprobs) == pytest.approx(top.values.tolist(), abs=1e-5)


def test_only_the_chosen_token():
    (logprobs,) = token_logprobs(BlockedLogits.of(torch.zeros(1, 4)), [2], [0])
    assert logprobs.logprob == pytest.approx(-1.3862944)
    assert logprobs.top_token_ids == ()
