"""Lookups in the target: the text is that of plain decoding; who drafts, and what another drafter is asked."""

from collections.abc import Mapping, Sequence

import pytest

from pilotfish.config import DraftConfig
from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.engine.core.in_target_drafting import DraftWish
from pilotfish.engine.core.kept_rows import KeptRows
from pilotfish.engine.drafting.in_target_lookup import InTargetLookup
from pilotfish.speculation.lookup.index import lookup_of
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import AcceptanceMode, SamplingParams, TreeRequest
from tests.support.engine_events import GreedyText, MakeCore, decode

VOCAB, CONTEXT = 64, 128
GREEDY = SamplingParams(temperature=0, max_tokens=60)
SAMPLINGS = [
    GREEDY,
    SamplingParams(temperature=0.5, seed=7, max_tokens=60, repetition_penalty=1.1),
    SamplingParams(temperature=0.5, seed=3, max_tokens=60, acceptance=AcceptanceMode.REJECTION),
]
TREES = [None, TreeRequest(max_nodes=8, branching=2)]
REPETITIVE = (1, 5, 9, 2, 33, 7) * 5


class Other:
    """Drafts one token that is never said, and remembers what it was asked."""

    name = "other"
    num_rounds = 0

    def __init__(self) -> None:
        self.asked: list[Sequence[DraftWish]] = []

    def allocate(self, num_blocks: int) -> int:
        return 7 * num_blocks

    def follow(self, kept: Sequence[KeptRows], wishes: Mapping[int, DraftWish]) -> list[Drafts]:
        self.asked.append(list(wishes.values()))
        chain = DraftTree.chain(1)
        return [Drafts.chosen((VOCAB - 1,), chain, wish.sequence.sampling) for wish in wishes.values()]


@pytest.fixture
def make_drafted(make_core: MakeCore) -> MakeCore:
    return lambda drafter, **changes: make_core(drafter and (lambda _: drafter), max_draft_tokens=12, **changes)


def lookup(name: str = "suffix", other: Other | None = None, min_accepted_tokens: float = 0.0) -> InTargetLookup:
    return InTargetLookup(name, lookup_of(name)(DraftConfig()), other, min_accepted_tokens)


def run(
    core: EngineCore,
    prompts: Sequence[Sequence[int]],
    sampling: SamplingParams = GREEDY,
    tree: TreeRequest | None = None,
) -> tuple[list[list[int]], int, int]:
    """The texts, drafted tokens, and verdicts of runs that all sequences are in at once."""
    texts, verdicts = decode(core, prompts, sampling, 40, 6, tree)
    core.step()
    return texts, sum(verdict.num_draft_tokens for verdict in verdicts), len(verdicts)


@pytest.mark.parametrize(
    ("name", "tree", "sampling"),
    [
        ("ngram", None, SAMPLINGS[1]),
        ("ngram", TREES[1], GREEDY),
        ("suffix", None, GREEDY),
        ("suffix", TREES[1], SAMPLINGS[1]),
    ],
)
def test_the_text_is_that_of_plain_decoding(
    make_drafted: MakeCore, name: str, tree: TreeRequest | None, sampling: SamplingParams
) -> None:
    prompts = [REPETITIVE, (3, 1, 4, 1, 5, 9, 2, 6), (8, 8, 8, 8)]
    plain, _, num_steps = run(make_drafted(None), prompts, sampling)
    texts, num_drafted, num_verdicts = run(make_drafted(lookup(name)), prompts, sampling, tree)
    assert texts == plain
    assert num_drafted > 0
    assert num_verdicts < num_steps


@pytest.mark.parametrize("tree", TREES, ids=["chains", "trees"])
def test_rejection_sampling_and_tight_caches_hold(make_drafted: MakeCore, tree: TreeRequest | None) -> None:
    core = make_drafted(lookup(), kv_cache_tokens=160)
    texts, num_drafted, _ = run(core, [REPETITIVE, REPETITIVE[3:]], SAMPLINGS[2], tree)
    assert [len(text) for text in texts] == [40, 40]
    assert num_drafted > 0


def test_a_confident_lookup_spares_the_other_drafter_the_work(make_drafted: MakeCore, greedy_text: GreedyText) -> None:
    other = Other()
    core = make_drafted(lookup(other=other, min_accepted_tokens=1.0))
    text, _, _ = run(core, [REPETITIVE])
    assert text == [greedy_text(REPETITIVE, 40)]
    # It is shown every step; it drafts in some of them.
    assert any(other.asked)
    assert not all(other.asked)


@pytest.mark.parametrize("tree", TREES, ids=["chains", "trees"])
def test_where_the_lookup_doubts_the_other_drafts_alone(make_drafted: MakeCore, tree: TreeRequest | None) -> None:
    drafter = lookup(other=Other(), min_accepted_tokens=100.0)
    _, num_drafted, num_verdicts = run(make_drafted(drafter), [REPETITIVE], tree=tree)
    assert 0 < num_drafted <= num_verdicts


def test_outputs_serve_later_sequences(make_drafted: MakeCore) -> None:
    core = make_drafted(lookup())
    prompt = (3, 1, 4, 1, 5, 9, 2, 6)
    _, _, first = run(core, [prompt])
    _, _, second = run(core, [prompt])
    assert second < first
