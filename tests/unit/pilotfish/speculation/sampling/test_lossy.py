"""Lossy acceptance, by what its definitions say: which drafts stand, and what comes after them."""

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch

from pilotfish.speculation.rounds import Round, verify
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import AcceptanceMode, SamplingParams

PROBS = torch.tensor([[0.5, 0.3, 0.15, 0.05, 0.0], [0.1, 0.2, 0.3, 0.4, 0.0], [0.97, 0.01, 0.01, 0.01, 0.0]])
LOGITS = PROBS.log()


def sampling(acceptance: AcceptanceMode = AcceptanceMode.TYPICAL, **changes: Any) -> SamplingParams:
    return SamplingParams(acceptance=acceptance, **changes)


def outcome(params: SamplingParams, drafts: tuple[int, ...], tree: DraftTree | None = None, rows: Any = None) -> Any:
    logits = LOGITS[: len(drafts) + 1] if rows is None else LOGITS[rows]
    (result,) = verify(logits, [Round(params, 7, drafts, (), None, tree)])
    return result


def plain(params: SamplingParams, row: int, position: int) -> int:
    """What decoding without drafts gives."""
    exact = SamplingParams(seed=params.seed, temperature=params.temperature)
    (result,) = verify(LOGITS[row : row + 1], [Round(exact, position, (), (), None)])
    return result.token_ids[0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_typical_draft_stands_above_its_threshold(temperature: float, seed: int) -> None:
    entropy = -sum(prob * math.log(prob) for prob in (0.5, 0.3, 0.15, 0.05))
    for epsilon, delta, token in itertools.product((0.0, 0.1, 0.4, 1.0), (0.0, 0.5, 1.0), range(5)):
        params = sampling(typical_epsilon=epsilon, typical_delta=delta, temperature=temperature, seed=seed)
        stands = float(PROBS[0, token]) > min(epsilon, delta * math.exp(-entropy))
        result = outcome(params, (token,))
        assert result.num_accepted == int(stands)
        assert result.token_ids[-1] == plain(params, int(stands), 7 + int(stands))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_tolerated_draft_is_likely_enough_and_high_enough(temperature: float) -> None:
    for top_k, delta, token in itertools.product((0, 1, 2, 5), (0.0, 0.21, 0.4, 1.0), range(5)):
        params = sampling(
            AcceptanceMode.TOLERANCE, tolerance_top_k=top_k, tolerance_delta=delta, temperature=temperature
        )
        prob = float(PROBS[0, token])
        stands = prob > 0 and token < top_k and prob >= 0.5 - delta - 1e-6
        assert outcome(params, (token,)).num_accepted == int(stands)


@pytest.mark.parametrize("temperature", [0.7, 0.8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_second_likeliest_is_one_of_two_at_any_temperature(temperature: float, dtype: torch.dtype) -> None:
    """Rounding does not make a token likelier than itself."""
    logits = torch.randn(200, 1000, generator=torch.Generator().manual_seed(1)).to(dtype)
    params = sampling(AcceptanceMode.TOLERANCE, tolerance_top_k=2, tolerance_delta=1, temperature=temperature)
    for row in logits:
        second = int(row.float().topk(2).indices[1])
        (result,) = verify(torch.stack((row, row)), [Round(params, 7, (second,), (), None)])
        assert result.num_accepted == 1


def test_at_0_every_possible_draft_stands() -> None:
    params = sampling(typical_epsilon=0, typical_delta=0)
    assert outcome(params, (3, 0)).num_accepted == 2
    assert outcome(params, (3, 4)).num_accepted == 1, "what is impossible never stands"


def test_down_a_tree_the_first_child_that_stands_goes_on() -> None:
    params = sampling(AcceptanceMode.TOLERANCE, tolerance_top_k=2, temperature=0)
    tree = DraftTree((-1, -1, 1))
    result = outcome(params, (3, 1, 2), tree, rows=[0, 1, 1, 2])
    assert result.path == (1, 2)
    assert result.token_ids == (1, 2, 0)


def test_cuts_and_biases_come_first() -> None:
    forbidding = sampling(typical_epsilon=0, typical_delta=0, top_k=2)
    assert outcome(forbidding, (2,)).num_accepted == 0
    biased = sampling(typical_epsilon=0.4, typical_delta=1, logit_bias=((2, 10.0),))
    assert outcome(biased, (2,)).num_accepted == 1


def test_the_distribution_is_the_drafters_where_it_stands_and_the_targets_elsewhere() -> None:
    """Enumerated: a draft of token 1 stands, so it is all there is; one of token 3 does not, and the target samples."""
    params = [sampling(typical_epsilon=0.2, typical_delta=1, seed=seed) for seed in range(2000)]

    def first_tokens(draft: int, params: list[SamplingParams]) -> Counter[int]:
        rounds = [Round(each, 7, (draft,), (), None) for each in params]
        return Counter(result.token_ids[0] for result in verify(LOGITS[:2].repeat(len(rounds), 1), rounds))

    assert first_tokens(1, params[:200]).keys() == {1}
    counts = first_tokens(3, params)
    assert counts[0] / 2000 == pytest.approx(0.5, abs=0.05)
    assert counts[3] / 2000 == pytest.approx(0.05, abs=0.02)
