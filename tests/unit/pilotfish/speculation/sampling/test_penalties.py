import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.history import TokenHistory
from pilotfish.speculation.sampling.penalties import Row, adjust
from pilotfish.types import SamplingParams

VOCAB_SIZE = 10
TOKENS = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=8)


def by_definition(row: list[float], sampling: SamplingParams, prompt: list[int], output: list[int]) -> list[float]:
    row = list(row)
    for token_id in {*prompt, *output}:
        row[token_id] *= 1 / sampling.repetition_penalty if row[token_id] > 0 else sampling.repetition_penalty
    for token_id in output:
        row[token_id] -= sampling.frequency_penalty
    for token_id in set(output):
        row[token_id] -= sampling.presence_penalty
    for token_id, bias in sampling.logit_bias:
        row[token_id] += bias
    if sampling.allowed_token_ids:
        row = [value if token_id in sampling.allowed_token_ids else -math.inf for token_id, value in enumerate(row)]
    forbidden = set(sampling.stop_token_ids if len(output) < sampling.min_tokens else ())
    for *before, last in sampling.bad_words:
        if output[len(output) - len(before) :] == before and len(output) >= len(before):
            forbidden.add(last)
    return [-math.inf if token_id in forbidden else logit for token_id, logit in enumerate(row)]


SAMPLINGS = st.builds(
    SamplingParams,
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    presence_penalty=st.sampled_from([0.0, 0.6, -1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.25]),
    logit_bias=st.sampled_from([(), ((3, -100.0),), ((0, 2.0), (9, -1.0), (0, 1.0))]),
    min_tokens=st.integers(0, 9),
    stop_token_ids=st.sampled_from([(), (4,), (2, VOCAB_SIZE)]),
    bad_words=st.sampled_from([(), ((5,),), ((0, 1), (1, 1), (2, 3, 0))]),
    allowed_token_ids=st.sampled_from([(), (8, 3, 6, 7, 9)]),
)


@given(st.lists(st.tuples(SAMPLINGS, TOKENS, TOKENS, TOKENS), min_size=1, max_size=4), st.integers(0, 2**31))
def test_adjusts_by_the_definitions(cases, seed):
    logits = torch.randn(len(cases), VOCAB_SIZE, generator=torch.Generator().manual_seed(seed))
    before = logits.clone()
    rows = [Row(sampling, 0, TokenHistory(prompt, output), drafts) for sampling, prompt, output, drafts in cases]
    adjusted = adjust(BlockedLogits.of(logits), rows)
    expected = [
        by_definition(row, sampling, prompt, output + drafts)
        for row, (sampling, prompt, output, drafts) in zip(logits.tolist(), cases, strict=True)
    ]
    assert torch.allclose(adjusted.logits, torch.tensor(expected), atol=1e-5)
    assert torch.equal(adjusted.block_max, adjusted.logits.amax(-1, keepdim=True))
    assert torch.equal(logits, before)


def test_a_row_of_which_nothing_is_left_stays() -> None:
    logits = torch.randn(1, VOCAB_SIZE)
    sampling = SamplingParams(min_tokens=1, stop_token_ids=tuple(range(VOCAB_SIZE)))
    assert torch.equal(adjust(BlockedLogits.of(logits), [Row(sampling, 5, TokenHistory([1]))]).logits, logits)


@pytest.mark.parametrize(
    ("sampling", "greatest"),
    [
        (SamplingParams(logit_bias=((7, 3.4e38), (7, 3.4e38))), 7),
        (SamplingParams(logit_bias=tuple((token_id, -3.4e38) for token_id in range(VOCAB_SIZE)) * 2), None),
        (SamplingParams(repetition_penalty=1e-44), 4),
        (SamplingParams(repetition_penalty=3e38), None),
    ],
)
def test_extreme_parameters_leave_finite_logits(sampling, greatest):
    """Infinite ones would turn the softmax into NaN, and the sample into token 0."""
    logits = torch.linspace(-4, 3, VOCAB_SIZE).unsqueeze(0)
    logits[0, 4] = 2.5
    adjusted = adjust(BlockedLogits.of(logits), [Row(sampling, 5, TokenHistory([0, 1, 4], [2, 4]))])
    assert adjusted.logits.isfinite().all()
    if greatest is not None:
        assert adjusted.argmax().tolist() == [greatest]
