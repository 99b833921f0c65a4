"""A world small enough to enumerate: a Markov chain over 12 tokens, and exact distributions by the book.

`Simulation` decodes the first two output tokens of many sequences with the real drafting and
verification; `p_values` compares them with enumeration. Wrong rules are plugged in by
test_can_fail.py, through the same two.
"""

import gc
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from pilotfish.speculation.draft_tokens import draft
from pilotfish.speculation.results import DraftToken, Outcome
from pilotfish.speculation.rounds import Round, verify
from pilotfish.speculation.sampling.history import TokenHistory
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import SamplingParams, SparseDistribution

VOCAB_SIZE = 12
PROMPT = (3, 5, 5)
NUM_DRAWS = 15_000
NUM_SEEDS = 40
"""Each with NUM_DRAWS / NUM_SEEDS positions: both keys of the noise vary."""
TOP_M = {"top_m": 3}

TreeDrafter = Callable[
    [list[SamplingParams], list[int], list[list[int]]],
    list[tuple[list[int], list[SparseDistribution], DraftTree]],
]
"""Of sequences with these parameters, positions and outputs: token ids, distributions and shape of each draft."""
DraftFunction = Callable[[Tensor, Sequence[Row], int], list[DraftToken]]
VerifyFunction = Callable[[Tensor, Sequence[Round]], list[Outcome]]


@pytest.fixture(autouse=True)
def _no_gc() -> Iterator[None]:
    # A draw makes a dozen small objects and no cycles: collections would take half of the time.
    gc.disable()
    yield
    gc.enable()


def target_table() -> Tensor:
    """[V, V]: logits after each token."""
    return torch.randn(VOCAB_SIZE, VOCAB_SIZE, generator=torch.Generator().manual_seed(11)) * 1.5


def draft_table(drafter: str) -> Tensor:
    """[V, V]: the drafter's logits after each token."""
    target = target_table()
    generator = torch.Generator().manual_seed(12)
    noise = torch.randn(VOCAB_SIZE, VOCAB_SIZE, generator=generator)
    match drafter:
        case "good" | "top_m":
            return target + 0.5 * noise
        case "bad":
            return noise * 1.5
        case "one_hot":
            # Not the target's favourite: a one-hot draft that is often wrong.
            second = target.topk(2).indices[:, 1:]
            return torch.full_like(target, -1e4).scatter(1, second, 0.0)
        case "identical":
            return target
    raise ValueError(drafter)


def exact_probs(logits: Sequence[float], sampling: SamplingParams, prompt: Sequence[int], output: Sequence[int]):
    """[V]: the post-processed distribution, one step of the definition at a time. Temperature above 0."""
    logits = list(logits)
    for token_id in set(prompt) | set(output):
        penalty = sampling.repetition_penalty
        logits[token_id] = logits[token_id] / penalty if logits[token_id] > 0 else logits[token_id] * penalty
    for token_id in set(output):
        logits[token_id] -= sampling.presence_penalty + sampling.frequency_penalty * list(output).count(token_id)
    for token_id, bias in sampling.logit_bias:
        logits[token_id] += bias
    if sampling.allowed_token_ids:
        logits = [logit if at in sampling.allowed_token_ids else -math.inf for at, logit in enumerate(logits)]
    weights = [math.exp((logit - max(logits)) / sampling.temperature) for logit in logits]
    ranked = sorted(range(len(logits)), key=lambda token_id: (-weights[token_id], token_id))
    if sampling.top_k:
        ranked = ranked[: sampling.top_k]
    total = sum(weights[token_id] for token_id in ranked)
    before = [0.0, *itertools.accumulate(weights[token_id] / total for token_id in ranked)]
    ranked = [token_id for token_id, mass in zip(ranked, before, strict=False) if mass < sampling.top_p]
    ranked = [token_id for token_id in ranked if weights[token_id] >= sampling.min_p * weights[ranked[0]]]
    probs = np.zeros(len(logits))
    probs[ranked] = [weights[token_id] for token_id in ranked]
    return probs / probs.sum()


@dataclass
class Simulation:
    """The first output tokens of num_draws sequences, in rounds of num_draft_tokens drafts."""

    sampling: SamplingParams
    drafter: str
    num_draft_tokens: int = 1
    draft_function: DraftFunction = draft
    verify_function: VerifyFunction = verify
    tree_drafter: TreeDrafter | None = None
    """Drafts trees in place of the drafter's chains."""
    num_draws: int = NUM_DRAWS
    """Fewer draws are the first of more."""
    num_tokens: int = 2
    """1: only what first drafts come to is looked at."""
    num_accepted: int = 0
    """First drafts accepted, of num_draws."""
    samplings: list[SamplingParams] = field(default_factory=list)

    def run(self) -> np.ndarray:
        """int [num_draws, num_tokens]."""
        outputs: list[list[int]] = [[] for _ in range(self.num_draws)]
        self.samplings = [self._with_seed(seed) for seed in range(NUM_SEEDS)]
        while active := [index for index, output in enumerate(outputs) if len(output) < self.num_tokens]:
            for index, outcome in zip(active, self._round(active, outputs), strict=True):
                outputs[index].extend(outcome.token_ids)
        return np.array([output[: self.num_tokens] for output in outputs])

    def _with_seed(self, seed: int) -> SamplingParams:
        fields = {name: getattr(self.sampling, name) for name in SamplingParams.__struct_fields__}
        return SamplingParams(**{**fields, "seed": seed})

    def _round(self, active: list[int], outputs: list[list[int]]) -> list[Outcome]:
        samplings = [self.samplings[index % NUM_SEEDS] for index in active]
        positions = [len(PROMPT) + len(outputs[index]) + 8 * (index // NUM_SEEDS) for index in active]
        contexts = [outputs[index] for index in active]
        proposals = (self.tree_drafter or self._propose_chains)(samplings, positions, contexts)
        rounds = [
            Round(sampling, position, token_ids, probs, self._history(context), tree)
            for sampling, position, context, (token_ids, probs, tree) in zip(
                samplings, positions, contexts, proposals, strict=True
            )
        ]
        last = [
            token_id
            for context, round_ in zip(contexts, rounds, strict=True)
            for token_id in (context[-1] if context else PROMPT[-1], *round_.draft_token_ids)
        ]
        outcomes = self.verify_function(target_table()[last], rounds)
        if len(active) == self.num_draws:
            self.num_accepted = sum(outcome.num_accepted > 0 for outcome in outcomes)
        return outcomes

    def _propose_chains(
        self, samplings: list[SamplingParams], positions: list[int], contexts: list[list[int]]
    ) -> list[tuple[list[int], list[SparseDistribution], DraftTree]]:
        proposals: list[list[DraftToken]] = [[] for _ in contexts]
        tentative = [list(context) for context in contexts]
        table = draft_table(self.drafter)
        for offset in range(self.num_draft_tokens):
            rows = [
                Row(sampling, position + offset, self._history(tokens))
                for sampling, position, tokens in zip(samplings, positions, tentative, strict=True)
            ]
            last = [tokens[-1] if tokens else PROMPT[-1] for tokens in tentative]
            drafts = self.draft_function(table[last], rows, TOP_M.get(self.drafter, VOCAB_SIZE))
            for proposal, tokens, drafted in zip(proposals, tentative, drafts, strict=True):
                proposal.append(drafted)
                tokens.append(drafted.token_id)
        return [
            (
                [drafted.token_id for drafted in proposal],
                [drafted.probs for drafted in proposal if drafted.probs is not None],
                DraftTree.chain(len(proposal)),
            )
            for proposal in proposals
        ]

    def _history(self, output: Sequence[int]) -> TokenHistory | None:
        return TokenHistory(PROMPT, output) if self.sampling.has_penalties else None


def exact_joint(sampling: SamplingParams) -> np.ndarray:
    """[V, V]: the distribution of the first two output tokens when the target decodes alone."""
    table = target_table().tolist()
    first = exact_probs(table[PROMPT[-1]], sampling, PROMPT, ())
    rows = [exact_probs(table[token_id], sampling, PROMPT, (token_id,)) for token_id in range(VOCAB_SIZE)]
    return first[:, None] * np.array(rows)


def p_value(counts: np.ndarray, probs: np.ndarray) -> float:
    """Chi-square; cells that expect less than 5 are pooled. An impossible outcome has p-value 0."""
    if counts[probs == 0].any():
        return 0.0
    expected = probs * counts.sum()
    is_small = expected < 5
    observed = np.append(counts[~is_small], counts[is_small].sum())
    expected = np.append(expected[~is_small], expected[is_small].sum())
    if expected[-1] < 1:
        observed, expected = observed[:-1], expected[:-1]
        expected = expected * observed.sum() / expected.sum()
    if len(observed) < 2:
        return 1.0
    return float(stats.chisquare(observed, expected).pvalue)


def p_values(tokens: np.ndarray, sampling: SamplingParams) -> tuple[float, float]:
    """Of the first token's marginal, and of the joint of the first two."""
    joint = exact_joint(sampling)
    counts = np.zeros_like(joint, dtype=int)
    np.add.at(counts, (tokens[:, 0], tokens[:, 1]), 1)
    return p_value(counts.sum(1), joint.sum(1)), p_value(counts.ravel(), joint.ravel())


@pytest.fixture
def world() -> SimpleNamespace:
    """What the tests use of this file."""
    return SimpleNamespace(
        simulation=Simulation,
        p_values=p_values,
        exact_probs=exact_probs,
        target_table=target_table,
        draft_table=draft_table,
        prompt=PROMPT,
        num_draws=NUM_DRAWS,
    )
