import math

import pytest
import torch

from pilotfish.speculation.draft_tokens import draft
from pilotfish.speculation.sampling.history import TokenHistory
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.trees.branching import branch
from pilotfish.types import AcceptanceMode, SamplingParams

VOCAB_SIZE = 700
LOGITS = torch.randn(6, VOCAB_SIZE, generator=torch.Generator().manual_seed(3)) * 3
SAMPLINGS = (
    SamplingParams(temperature=0),
    SamplingParams(temperature=0, repetition_penalty=1.5, logit_bias=((5, 20.0),)),
    SamplingParams(temperature=0.8, seed=4),
    SamplingParams(top_p=0.9, presence_penalty=1.0, seed=7),
    SamplingParams(acceptance=AcceptanceMode.REJECTION, temperature=0.7),
    SamplingParams(acceptance=AcceptanceMode.REJECTION, top_k=3),
)


def make_rows(position: int = 9) -> list[Row]:
    return [
        Row(sampling, position, TokenHistory([1, 2], [3]) if sampling.has_penalties else None, [4, 5])
        for sampling in SAMPLINGS
    ]


def test_the_first_candidate_is_what_a_chain_would_hold():
    """In greedy and coupled mode, with the node's own path counted by the penalties."""
    history = TokenHistory([1, 2], [3, 4, 5])
    rows = [Row(s, 9, history if s.has_penalties else None) for s in SAMPLINGS[:4]]
    chain = [drafted.token_id for drafted in draft(LOGITS[:4], rows, 8)]
    tree = branch(LOGITS, make_rows(), 5)
    assert [candidates[0].token_id for candidates in tree[:4]] == chain


def test_probabilities_are_the_drafters():
    greedy, *_, rejection, truncated = branch(LOGITS, make_rows(), 4)
    expected = LOGITS[0].log_softmax(-1).topk(4)
    assert [candidate.token_id for candidate in greedy] == expected.indices.tolist()
    assert [candidate.log_prob for candidate in greedy] == pytest.approx(expected.values.tolist(), abs=1e-4)
    expected = (LOGITS[4] / 0.7).log_softmax(-1).topk(4)
    assert [candidate.token_id for candidate in rejection] == expected.indices.tolist()
    assert [candidate.log_prob for candidate in rejection] == pytest.approx(expected.values.tolist(), abs=1e-4)
    assert len(truncated) == 3
    assert sum(math.exp(candidate.log_prob) for candidate in truncated) == pytest.approx(1.0, abs=1e-5)


def test_coupled_candidates_are_those_that_another_model_would_likely_pick():
    """The target differs a little: its pick is more often among four candidates than it is the first."""
    generator = torch.Generator().manual_seed(1)
    firsts = among = 0
    for seed in range(150):
        logits = torch.randn(1, VOCAB_SIZE, generator=generator) * 2
        row = Row(SamplingParams(seed=seed), 5, None)
        (candidates,) = branch(logits, [row], 4)
        target = logits + torch.randn(1, VOCAB_SIZE, generator=generator)
        (said,) = draft(target, [Row(row.sampling, 5, None)], 8)
        token_ids = [candidate.token_id for candidate in candidates]
        firsts += said.token_id == token_ids[0]
        among += said.token_id in token_ids
    assert among > 1.3 * firsts > 30
