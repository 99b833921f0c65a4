"""Verification: what a step's logits decide for every sequence in it.

Vocabulary: draft tokens are proposed; an accepted one becomes output; a recovered token replaces
the first rejected draft; a bonus follows when all were accepted; a plain token had no draft. Where the
drafts are a tree, "all" is a path down to a leaf.

Shapes: R rows of the step, V vocabulary, K drafts of a round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, compress

import msgspec
from torch import Tensor

from pilotfish.speculation.results import Outcome
from pilotfish.speculation.sampling import greedy, rejection
from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.constraints import TokenConstraint
from pilotfish.speculation.sampling.coupling import pick_rows
from pilotfish.speculation.sampling.history import TokenHistory
from pilotfish.speculation.sampling.logits import Distribution, process
from pilotfish.speculation.sampling.logprobs import token_logprobs
from pilotfish.speculation.sampling.lossy import stands
from pilotfish.speculation.sampling.noise import Stream
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.sampling.rules import Rule, group
from pilotfish.speculation.sampling.token_lists import TokenLists
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import SamplingParams, SparseDistribution, TokenLogprobs


class Round(msgspec.Struct):
    """One sequence's rows in a step: row 0 decides the token after the committed ones, row i + 1 that after draft i."""

    sampling: SamplingParams
    first_position: int
    """Absolute index (prompt + output) of the token that row 0 decides; keys the random numbers."""
    draft_token_ids: Sequence[int]
    """K of them; none is plain decoding."""
    draft_probs: Sequence[SparseDistribution]
    """K of them in rejection mode, which the drafts were sampled from; else not looked at."""
    history: TokenHistory | None
    """Prompt and committed output; None when there are no penalties."""
    tree: DraftTree | None = None
    """Shape of the drafts; None: each continues the one before it."""
    constraint: TokenConstraint | None = None
    """The grammar after the committed tokens; None: the output is free."""
    token_lists: TokenLists | None = None
    """Token lists of the request, as in Row."""

    @property
    def shape(self) -> DraftTree:
        return DraftTree.chain(len(self.draft_token_ids)) if self.tree is None else self.tree


_Decision = tuple[tuple[int, ...], tuple[int, ...]]
"""Path and output tokens."""


def verify(logits: Tensor, rounds: Sequence[Round]) -> list[Outcome]:
    """Decide every round of a step.

    logits: [R, V], bfloat16 or float32, never mutated; the K + 1 rows of each round follow those
    of the round before. What a round gets depends on its own rows, seed and positions alone.
    Raises ValueError when the rows or a tree do not add up, when penalties come without a history, or
    when rejection mode has not one distribution per draft.
    """
    for round_ in rounds:
        if round_.tree is not None and len(round_.tree) != len(round_.draft_token_ids):
            raise ValueError(f"{len(round_.draft_token_ids)} drafts in a tree of {len(round_.tree)}")
    ends = list(accumulate(len(round_.draft_token_ids) + 1 for round_ in rounds))
    if logits.shape[0] != (ends[-1] if ends else 0):
        raise ValueError(f"{logits.shape[0]} rows of logits for rounds of {ends[-1] if ends else 0}")
    if not rounds:
        return []
    first_rows = [0, *ends[:-1]]
    blocks = BlockedLogits.of(logits)
    decisions: list[_Decision] = [((), ())] * len(rounds)
    for key, members in group(round_.sampling for round_ in rounds).items():
        chains = [index for index in members if rounds[index].tree is None and not key.is_lossy]
        trees = [index for index in members if rounds[index].tree is not None and not key.is_lossy]
        lossy = members if key.is_lossy else []
        for decide, indices in ((_decide, chains), (_decide_trees, trees), (_decide_lossy, lossy)):
            if not indices:
                continue
            row_ids = [row for index in indices for row in range(first_rows[index], ends[index])]
            chosen = [rounds[index] for index in indices]
            decided = decide(blocks.select(row_ids), chosen, key.rule, key.is_adjusted)
            for index, decision in zip(indices, decided, strict=True):
                decisions[index] = decision
    logprobs = _logprobs(blocks, rounds, first_rows, decisions)
    return [Outcome(*decision, logprobs.get(index, ())) for index, decision in enumerate(decisions)]


def _decide(blocks: BlockedLogits, rounds: Sequence[Round], rule: Rule, is_adjusted: bool) -> list[_Decision]:
    """All rows at once: cheaper for the few of a chain than one after the other."""
    if rule is Rule.GREEDY:
        return _match(rounds, greedy.choose(blocks, _rows(rounds) if is_adjusted else ()))
    rows = _rows(rounds)
    distribution = process(blocks, rows)
    if rule is Rule.COUPLED:
        return _match(rounds, pick_rows(distribution, rows, Stream.COUPLED).tolist())
    return _reject(rounds, rows, distribution.select)


def _decide_trees(blocks: BlockedLogits, rounds: Sequence[Round], rule: Rule, is_adjusted: bool) -> list[_Decision]:
    """Only the rows on the way down are processed: few of a wide tree."""
    if rule is Rule.GREEDY and not is_adjusted:
        return _match(rounds, greedy.choose(blocks, ()))
    rows = _rows(rounds)
    if rule is Rule.REJECTION:
        return _reject(rounds, rows, lambda row_ids: process(blocks.select(row_ids), [rows[row] for row in row_ids]))
    first_rows = _first_rows(rounds)
    outputs: list[list[int]] = [[] for _ in rounds]

    def next_nodes(active: list[int], row_ids: list[int]) -> list[int | None]:
        nodes = []
        for index, row, token_id in zip(
            active, row_ids, _choose(blocks, rows, rule, is_adjusted, row_ids), strict=True
        ):
            outputs[index].append(token_id)
            round_ = rounds[index]
            nodes.append(greedy.child(round_.shape, round_.draft_token_ids, row - first_rows[index], token_id))
        return nodes

    paths = _walk(rounds, next_nodes)
    return [(tuple(path), tuple(output)) for path, output in zip(paths, outputs, strict=True)]


def _decide_lossy(blocks: BlockedLogits, rounds: Sequence[Round], rule: Rule, is_adjusted: bool) -> list[_Decision]:
    """Down the first children that stand, and then what plain decoding gives there."""
    rows, first_rows = _rows(rounds), _first_rows(rounds)

    def next_nodes(active: list[int], row_ids: list[int]) -> list[int | None]:
        children: dict[int, Sequence[int]] = {}
        token_ids: dict[int, list[int]] = {}
        for index, row in zip(active, row_ids, strict=True):
            children[row] = rounds[index].shape.children[row - first_rows[index]]
            if children[row]:
                token_ids[row] = [rounds[index].draft_token_ids[node] for node in children[row]]
        if not token_ids:
            return [None] * len(row_ids)
        inner = list(token_ids)
        found = stands(blocks.select(inner), [rows[row] for row in inner], list(token_ids.values()))
        standing = dict(zip(inner, found, strict=True))
        return [next(compress(children[row], standing.get(row, ())), None) for row in row_ids]

    paths = _walk(rounds, next_nodes)
    last_rows = [first_row + _rows_on(path)[-1] for first_row, path in zip(first_rows, paths, strict=True)]
    choices = _choose(blocks, rows, rule, is_adjusted, last_rows)
    return [
        (tuple(path), (*(round_.draft_token_ids[node] for node in path), token_id))
        for round_, path, token_id in zip(rounds, paths, choices, strict=True)
    ]


def _choose(blocks: BlockedLogits, rows: Sequence[Row], rule: Rule, is_adjusted: bool, row_ids: list[int]) -> list[int]:
    """What plain decoding gives at those rows."""
    selected, chosen = blocks.select(row_ids), [rows[row] for row in row_ids]
    if rule is Rule.GREEDY:
        return greedy.choose(selected, chosen if is_adjusted else ())
    token_ids: list[int] = pick_rows(process(selected, chosen), chosen, Stream.COUPLED).tolist()
    return token_ids


def _reject(
    rounds: Sequence[Round], rows: Sequence[Row], distribution_of: Callable[[list[int]], Distribution]
) -> list[_Decision]:
    draft_blocks = [
        rejection.DraftBlock(first_row, round_.draft_token_ids, round_.draft_probs, round_.shape)
        for first_row, round_ in zip(_first_rows(rounds), rounds, strict=True)
    ]
    return [
        (path, (*(round_.draft_token_ids[node] for node in path), token_id))
        for round_, (path, token_id) in zip(rounds, rejection.decide(distribution_of, rows, draft_blocks), strict=True)
    ]


def _walk(rounds: Sequence[Round], next_nodes: Callable[[list[int], list[int]], list[int | None]]) -> list[list[int]]:
    """The path of each round down its drafts, a level of all at a time. next_nodes: of some rounds and the row that
    each has come to, the node to go on with; None: the path ends."""
    first_rows = _first_rows(rounds)
    paths: list[list[int]] = [[] for _ in rounds]
    active = list(range(len(rounds)))
    while active:
        row_ids = [first_rows[index] + _rows_on(paths[index])[-1] for index in active]
        walking = []
        for index, node in zip(active, next_nodes(active, row_ids), strict=True):
            if node is not None:
                paths[index].append(node)
                walking.append(index)
        active = walking
    return paths


def _first_rows(rounds: Sequence[Round]) -> list[int]:
    return [0, *accumulate(len(round_.draft_token_ids) + 1 for round_ in rounds)][:-1]


def _rows(rounds: Sequence[Round]) -> list[Row]:
    """What shapes each row: its own path is what lies between the committed tokens and the one it decides."""
    return [
        Row(
            round_.sampling,
            round_.first_position + len(path),
            round_.history,
            [round_.draft_token_ids[node] for node in path],
            round_.constraint,
            round_.token_lists,
        )
        for round_ in rounds
        for path in round_.shape.paths
    ]


def _match(rounds: Sequence[Round], target_token_ids: list[int]) -> list[_Decision]:
    """The target's own choices up to and including the first that no draft foresaw."""
    decisions: list[_Decision] = []
    for first_row, round_ in zip(_first_rows(rounds), rounds, strict=True):
        choices = target_token_ids[first_row : first_row + len(round_.draft_token_ids) + 1]
        path = greedy.match(round_.shape, round_.draft_token_ids, choices)
        decisions.append((path, tuple(choices[row] for row in _rows_on(path))))
    return decisions


def _rows_on(path: Sequence[int]) -> list[int]:
    """The rows that decide the tokens of a path and the one after it."""
    return [0, *(node + 1 for node in path)]


def _logprobs(
    blocks: BlockedLogits, rounds: Sequence[Round], first_rows: list[int], decisions: list[_Decision]
) -> dict[int, tuple[TokenLogprobs, ...]]:
    """Log-probabilities by index of the round, for those that ask."""
    row_ids: list[int] = []
    token_ids: list[int] = []
    num_logprobs: list[int] = []
    for round_, first_row, (path, output) in zip(rounds, first_rows, decisions, strict=True):
        if round_.sampling.num_logprobs is not None:
            row_ids.extend(first_row + row for row in _rows_on(path))
            token_ids.extend(output)
            num_logprobs.extend([round_.sampling.num_logprobs] * len(output))
    if not row_ids:
        return {}
    flat = iter(token_logprobs(blocks.select(row_ids), token_ids, num_logprobs))
    return {
        index: tuple(next(flat) for _ in decisions[index][1])
        for index, round_ in enumerate(rounds)
        if round_.sampling.num_logprobs is not None
    }
