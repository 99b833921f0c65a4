"""Rounds of a target that drafts for itself, in virtual time: what they verify by its own rules, what they take by what
was measured, and what they yield by answers with drafts after every token. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from pilotfish.engine.core.draft_costs import PATIENT, DraftCosts, Thresholds
from pilotfish.engine.core.drafts import Drafts
from pilotfish.engine.core.in_target_drafting import worthwhile
from pilotfish.examine.costs import MeasuredRoundCosts
from pilotfish.examine.drafted_answer import DraftedAnswer, RehearsedDraft
from pilotfish.step_table import num_free_nodes

BRANCHING = 4
"""orchestrator.speculation.tree_branching's default."""
_MAX_ANSWERS = 64
"""Answers that a load is played with; of more, so many are chosen evenly."""
_TURNS = 3
"""Answers for each request that decodes at once, at least: with fewer the last one's end would count."""


@dataclass(frozen=True)
class Way:
    """How a request asks for drafts."""

    num_draft_tokens: int
    """0: it decodes plainly."""
    num_nodes: int = 0
    """The most nodes of a tree; 0: chains."""


@dataclass(frozen=True)
class Played:
    """What came of it. A round is one of one request."""

    num_tokens: int = 0
    num_rounds: int = 0
    num_drafts: int = 0
    time_s: float = 0.0

    @property
    def tokens_per_s(self) -> float:
        """0.0 where nothing was played."""
        return self.num_tokens / self.time_s if self.time_s else 0.0

    @property
    def tokens_per_round(self) -> float:
        """1.0 where nothing was played."""
        return self.num_tokens / self.num_rounds if self.num_rounds else 1.0


@dataclass
class _Running:
    answer: DraftedAnswer
    place: int = 1
    """Tokens of the answer so far."""

    def wants(self, way: Way) -> bool:
        """Whether it goes on, and is known to."""
        return self.place < len(self.answer.token_ids) and self.answer.is_known(self.place, way.num_draft_tokens)


def play(answers: Sequence[DraftedAnswer], costs: MeasuredRoundCosts, load: int, way: Way) -> Played:
    """Play the answers, `load` at once, each followed by the next, until there are no more. An empty result where no
    answer is long enough."""
    long = [answer for answer in answers if _Running(answer).wants(way)]
    chosen = long[:: max(1, -(-len(long) // _MAX_ANSWERS))]
    waiting = [*chosen] * -(-_TURNS * load // max(1, len(chosen)))
    running: list[_Running] = []
    memory, played = DraftCosts(), Played()
    while True:
        running = [each for each in running if each.wants(way)]
        while waiting and len(running) < load:
            running += [each for each in [_Running(waiting.pop())] if each.wants(way)]
        if len(running) < load:
            return played
        played = _step(running, costs, way, memory, played)


def _step(
    running: Sequence[_Running], costs: MeasuredRoundCosts, way: Way, memory: DraftCosts, before: Played
) -> Played:
    """A step of all of them, which verifies what was drafted after the one before."""
    load = len(running)
    drafts, passes = _drafted(running, costs, way, memory)
    draft_s = costs.passes_s(load, passes) if way.num_draft_tokens else 0.0
    num_drafts = sum(len(nodes) for _, nodes in drafts)
    step_s = costs.step_s(load, load + num_drafts)
    num_tokens = 0
    for each, (draft, nodes) in zip(running, drafts, strict=True):
        gained = 1 + _num_accepted(draft, nodes, each.answer.token_ids[each.place :])
        gained = min(gained, len(each.answer.token_ids) - each.place)
        each.place += gained
        num_tokens += gained
    # By the table that prices rows as well, which a target keeps to the level of its steps.
    table_s = costs.steps.step_s(load + num_drafts)
    memory.add(num_tokens, table_s, 1 + len(passes) if costs.grows else 0, draft_s)
    return Played(
        before.num_tokens + num_tokens,
        before.num_rounds + load,
        before.num_drafts + num_drafts,
        before.time_s + step_s + draft_s,
    )


_Nodes = frozenset[int] | range
"""Nodes of a tree, or of a chain, whose nodes follow each other."""


def _drafted(
    running: Sequence[_Running], costs: MeasuredRoundCosts, way: Way, memory: DraftCosts
) -> tuple[list[tuple[RehearsedDraft, _Nodes]], list[int]]:
    """What is verified for each, and the rows of each further pass of the drafter: as in_target_drafting decides."""
    if not way.num_draft_tokens:
        return [(RehearsedDraft(), range(0))] * len(running), []
    longest, load = way.num_draft_tokens, len(running)
    num_nodes = num_free_nodes(costs.steps.step_s, load, longest, way.num_nodes)
    thresholds = memory.thresholds(costs.steps.step_s, load, load * longest, load * num_nodes)
    drafts = [each.answer.draft_after(each.place) for each in running]
    if num_nodes > longest and way.num_nodes:
        return _trees(drafts, longest, num_nodes, thresholds if costs.grows else PATIENT)
    lengths, passes = _chain_lengths(drafts, longest, thresholds) if costs.grows else (_whole(drafts, longest), [])
    wanted = [
        Drafts(draft.token_ids[:length], confidences=draft.confidences[:length])
        for draft, length in zip(drafts, lengths, strict=True)
    ]
    kept = worthwhile(wanted, thresholds)
    return [(draft, range(len(each))) for draft, each in zip(drafts, kept, strict=True)], passes


def _trees(
    drafts: Sequence[RehearsedDraft], depth: int, num_nodes: int, thresholds: Thresholds
) -> tuple[list[tuple[RehearsedDraft, _Nodes]], list[int]]:
    grown = [
        (frozenset[int](), []) if draft.tree is None else draft.tree.grown(depth, num_nodes, BRANCHING, thresholds)
        for draft in drafts
    ]
    passes = [sum(rows) for rows in zip_longest(*(passes for _, passes in grown), fillvalue=0)]
    return [(draft, nodes) for draft, (nodes, _) in zip(drafts, grown, strict=True)], passes


def _whole(drafts: Sequence[RehearsedDraft], longest: int) -> list[int]:
    return [min(longest, len(draft.token_ids)) for draft in drafts]


def _chain_lengths(
    drafts: Sequence[RehearsedDraft], longest: int, thresholds: Thresholds
) -> tuple[list[int], list[int]]:
    """How far chains grow together, and the rows of each further pass: as draft_growth does."""
    most = _whole(drafts, longest)
    lengths = [min(1, length) for length in most]
    passes: list[int] = []
    active = list(range(len(drafts)))
    while active := [index for index in active if 0 < lengths[index] < most[index]]:
        newest = [drafts[index].confidences[lengths[index] - 1] for index in active]
        drafted = [each for draft, length in zip(drafts, lengths, strict=True) for each in draft.confidences[:length]]
        least = thresholds.least(drafted, newest)
        active = [index for index, sure in zip(active, newest, strict=True) if sure >= least]
        passes += [len(active)] if active else []
        for index in active:
            lengths[index] += 1
    return lengths, passes


def _num_accepted(draft: RehearsedDraft, nodes: _Nodes, token_ids: Sequence[int]) -> int:
    if isinstance(nodes, range):
        return min(len(nodes), draft.num_common(token_ids))
    return 0 if draft.tree is None else draft.tree.num_accepted(nodes, token_ids)
