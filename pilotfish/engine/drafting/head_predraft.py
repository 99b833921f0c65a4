"""What a head drafts ahead: a forward in each step, from its own hidden states, as within a chain.

Of the text it takes the target's features. Of the drafts that are being verified it takes the states that they had when
they were drafted: one step goes through all of them, and shows what they look like by the newest features. Then its
branches grow; see PredraftGrowth.

Legend: H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain

import torch
from torch import Tensor

from pilotfish.engine.core.drafted import Drafted
from pilotfish.engine.core.predraft_growth import PredraftGrowth
from pilotfish.engine.core.proposing import draft_plan
from pilotfish.engine.core.scheduler import ScheduledRows
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.task import PredraftTask
from pilotfish.engine.drafting.draft_growth import DraftRows, HeadGrowth
from pilotfish.engine.drafting.feature_window import window_of
from pilotfish.speculation.sampling.transfer import to_device


def draft_ahead(growth: HeadGrowth, scheduled: Sequence[ScheduledRows]) -> list[Drafted]:
    """Run the rows of a step, all of them with logits, of sequences that draft ahead; what follows for each.

    Changes of a sequence only the states in its window.
    """
    drafted: dict[int, Drafted] = {}
    tokens = [rows for rows in scheduled if not rows.drafts]
    nodes = [rows for rows in scheduled if rows.drafts]
    for group in filter(None, (tokens, nodes)):  # features are wider than states
        parts, states = zip(*map(_rows_and_states, group), strict=True)
        ends = accumulate(rows.num_rows for rows in group)
        newest = [range(end - rows.num_logit_rows, end) for rows, end in zip(group, ends, strict=True)]
        output = growth.forward(parts, torch.cat(states), list(chain.from_iterable(newest)))
        hidden = output.hidden.split_with_sizes([rows.num_logit_rows for rows in group])
        for rows, new in zip(group, hidden, strict=True):
            window = window_of(rows.sequence)
            window.hidden = torch.cat((window.hidden, new)) if rows.drafts else new.clone()
        plans = [draft_plan(rows.sequence) for rows in group]
        results = growth.next(plans, output.logits)
        drafted.update(zip((rows.sequence.sequence_id for rows in group), results, strict=True))
    return [drafted[rows.sequence.sequence_id] for rows in scheduled]


def keep_states(sequence: EngineSequence, growth: PredraftGrowth, token_ids: Sequence[int]) -> None:
    """Where token_ids have come, and the sequence drafts ahead of what growth has drafted for them: keep the states
    that those drafts had."""
    task = sequence.task
    if not isinstance(task, PredraftTask) or task.growth is growth:
        return
    _, branch = growth.follow(token_ids)
    assert branch is not None
    window = window_of(sequence)
    window.draft_states = [window.hidden[node + 1 : node + 2].clone() for node in branch.nodes[1:]]


def _rows_and_states(rows: ScheduledRows) -> tuple[DraftRows, Tensor]:
    """The rows, and the features or hidden states [n, H] of the places before them."""
    sequence, window = rows.sequence, window_of(rows.sequence)
    if not rows.drafts:
        return window.next_rows(sequence, rows.num_rows)
    tree = rows.drafts.shape
    first = len(tree) - rows.num_rows
    if first == 0:
        states = torch.cat((window.hidden, *window.draft_states[: rows.num_rows - 1]))
    else:
        parents = [parent + 1 for parent in tree.parents[first:]]
        states = window.hidden.index_select(0, to_device(parents, torch.int64, window.hidden.device))
    place = rows.first_position - window.origin
    return DraftRows(place, rows.drafts.token_ids[first:], sequence.block_ids, tree), states
