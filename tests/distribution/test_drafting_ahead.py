"""Rounds whose drafts were partly made ahead: the output has the target's distribution, on hits and on misses."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from torch import Tensor

from pilotfish.engine.core.drafts import DraftedChain
from pilotfish.engine.core.predraft_growth import PredraftGrowth
from pilotfish.messages import PredraftRequest
from pilotfish.speculation.draft_tokens import draft
from pilotfish.speculation.sampling.history import TokenHistory
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.trees.branching import branch
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import AcceptanceMode, SamplingParams, SparseDistribution

NUM_CANDIDATES = 5
Prepared = dict[tuple[int, ...], DraftedChain]
"""By the output that they assume."""
Take = Callable[[Prepared, tuple[int, ...]], DraftedChain | None]


@dataclass
class AheadDrafter:
    """Drafts ahead of some. A TreeDrafter of the simulation."""

    world: SimpleNamespace
    table: Tensor
    take: Take = lambda prepared, output: prepared.get(output)
    """Which of the drafts that were made ahead is used."""
    share: float = 0.4
    """Of the sequences something is made ahead for."""
    num_draft_tokens: int = 1
    """In a round."""
    ahead_table: Tensor | None = None
    """What is drafted ahead from, as a head does whose states are not those that it has when it is asked."""
    foresees: Callable[[DraftedChain], bool] = lambda verified: True
    """Whether anything is made ahead of these drafts."""
    start: Callable[[int], int] = lambda position: position
    """Where a draft's noise says that it begins."""
    num_hits: int = 0
    num_misses: int = 0
    prepared: dict[int, Prepared] = field(default_factory=dict)
    generator: random.Random = field(default_factory=lambda: random.Random(5))

    def __call__(
        self, samplings: list[SamplingParams], positions: list[int], contexts: list[list[int]]
    ) -> list[tuple[list[int], list[SparseDistribution], DraftTree]]:
        chains = [self.take(self.prepared.pop(id(context), {}), tuple(context)) for context in contexts]
        self.num_hits += sum(chain is not None for chain in chains)
        missing = [index for index, chain in enumerate(chains) if chain is None]
        self.num_misses += len(missing)
        for index in missing:
            chains[index] = DraftedChain()
        verified = [chain for chain in chains if chain is not None]
        for _ in range(self.num_draft_tokens):
            rows = [
                self._row(samplings[i], positions[i], contexts[i], verified[i].token_ids, positions[i]) for i in missing
            ]
            texts = [[*contexts[index], *verified[index].token_ids] for index in missing]
            for index, drafted in zip(missing, self._draft(rows, texts, self.table), strict=True):
                verified[index].add(drafted.token_ids[0], next(iter(drafted.probs), None), drafted.candidates[0])
        self._go_ahead(samplings, positions, contexts, verified)
        return [(chain.token_ids, chain.probs, DraftTree.chain(len(chain))) for chain in verified]

    def _row(
        self, sampling: SamplingParams, position: int, context: Sequence[int], path: Sequence[int], start: int
    ) -> Row:
        history = self._history(sampling, context)
        return Row(sampling, position + len(path), history, list(path), draft_start=self.start(start))

    def _draft(self, rows: Sequence[Row], texts: Sequence[Sequence[int]], table: Tensor) -> list[DraftedChain]:
        logits = table[[text[-1] if text else self.world.prompt[-1] for text in texts]]
        drafts = draft(logits, rows, 12)
        candidates = branch(logits, rows, NUM_CANDIDATES)
        return [
            DraftedChain([drafted.token_id], [] if drafted.probs is None else [drafted.probs], [at])
            for drafted, at in zip(drafts, candidates, strict=True)
        ]

    def _go_ahead(
        self,
        samplings: list[SamplingParams],
        positions: list[int],
        contexts: list[list[int]],
        verified: list[DraftedChain],
    ) -> None:
        """A draft for each of four recovered tokens: a second round has nothing to do where the draft was accepted."""
        chosen = [
            index
            for index, context in enumerate(contexts)
            if not context and self.foresees(verified[index]) and self.generator.random() < self.share
        ]
        length = self.num_draft_tokens
        request = PredraftRequest(4 * length, (0.0,))
        growths = [PredraftGrowth(verified[index], request, length) for index in chosen]
        for _ in range(1 + length):
            self._step(growths, [(samplings[index], positions[index], contexts[index]) for index in chosen])
        for index, growth in zip(chosen, growths, strict=True):
            self.prepared[id(contexts[index])] = {
                branch_.assumed_token_ids: branch_.drafts for branch_ in growth.branches
            }

    def _step(
        self, growths: Sequence[PredraftGrowth], sequences: Sequence[tuple[SamplingParams, int, list[int]]]
    ) -> None:
        paths = [growth.paths() for growth in growths]
        rows = [
            self._row(sampling, position, context, path, position + len(path) - num_drafted)
            for growth, (sampling, position, context), of_growth in zip(growths, sequences, paths, strict=True)
            for path in of_growth
            for num_drafted in [0 if growth.is_choosing else len(growth.branches[0].drafts)]
        ]
        table = self.table if self.ahead_table is None or (growths and growths[0].is_choosing) else self.ahead_table
        chains = iter(self._draft(rows, [row.draft_token_ids for row in rows], table))
        for growth, of_growth in zip(growths, paths, strict=True):
            drafted = [next(chains) for _ in of_growth]
            candidates = [chain.candidates[0] for chain in drafted]
            if growth.is_choosing:
                growth.choose(candidates)
            else:
                growth.extend([(chain.token_ids[0], next(iter(chain.probs), None)) for chain in drafted], candidates)

    def _history(self, sampling: SamplingParams, output: Sequence[int]) -> TokenHistory | None:
        return TokenHistory(self.world.prompt, output) if sampling.has_penalties else None


def run(world, sampling, table, **changes) -> tuple[tuple[float, float], AheadDrafter]:
    drafter = AheadDrafter(world, table, **changes)
    simulation = world.simulation(sampling, "", tree_drafter=drafter)
    return world.p_values(simulation.run(), sampling), drafter


@pytest.mark.parametrize(
    ("mode", "drafter_name"),
    [
        (AcceptanceMode.REJECTION, "good"),
        (AcceptanceMode.COUPLED, "good"),
    ],
    ids=str,
)
def test_output_has_the_targets_distribution(world, mode, drafter_name):
    p_values, drafter = run(world, SamplingParams(acceptance=mode), world.draft_table(drafter_name))
    assert min(p_values) > 1e-4
    assert drafter.num_hits > world.num_draws // 40
    assert drafter.num_misses > world.num_draws // 20


def test_with_penalties(world):
    sampling = SamplingParams(acceptance=AcceptanceMode.REJECTION, repetition_penalty=1.4, presence_penalty=0.7)
    p_values, drafter = run(world, sampling, world.draft_table("good"))
    assert min(p_values) > 1e-4
    assert drafter.num_hits > world.num_draws // 40


def test_choosing_a_draft_by_its_content_is_caught(world):
    """The most confident of what was prepared is taken, whatever came true: its distribution lies."""

    def most_confident(prepared: Prepared, output: tuple[int, ...]) -> DraftedChain | None:
        return max(prepared.values(), key=_confidence, default=None) if output else None

    sampling = SamplingParams(acceptance=AcceptanceMode.REJECTION)
    p_values, _ = run(world, sampling, world.draft_table("bad"), take=most_confident, share=1.0)
    assert min(p_values) < 1e-6


def run_head(world, sampling, **changes) -> tuple[tuple[float, float], AheadDrafter]:
    """It drafts well ahead and badly when it is asked. Its first draft is mostly rejected, for a token that it foresees
    where its second is an even one: the choice hangs on a draft that is not looked at, far more than in truth."""
    table, ahead_table = world.draft_table("bad"), world.draft_table("identical")
    first = ahead_table[world.prompt[-1]].clone()
    rejected = first.argmin()
    first[rejected] = first.max() + 3
    table[world.prompt[-1]], table[rejected] = first, 0.0
    changes |= {"foresees": lambda verified: verified.token_ids[-1] % 2 == 0, "ahead_table": ahead_table}
    return run(world, sampling, table, share=1.0, num_draft_tokens=2, **changes)


@pytest.mark.parametrize("mode", [AcceptanceMode.REJECTION, AcceptanceMode.COUPLED], ids=str)
def test_output_of_a_head_has_the_targets_distribution(world, mode):
    p_values, drafter = run_head(world, SamplingParams(acceptance=mode))
    assert min(p_values) > 1e-4
    assert drafter.num_hits > world.num_draws // 40
    assert drafter.num_misses > world.num_draws // 20


def test_noise_that_decided_what_a_head_foresees_and_draws_its_draft_as_well_is_caught(world):
    p_values, _ = run_head(world, SamplingParams(acceptance=AcceptanceMode.REJECTION), start=lambda position: 0)
    assert min(p_values) < 1e-6


def _confidence(chain: DraftedChain) -> float:
    return dict(zip(chain.probs[0].token_ids, chain.probs[0].probs, strict=True))[chain.token_ids[0]]
