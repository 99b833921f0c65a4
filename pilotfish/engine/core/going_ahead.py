"""From a proposal to what is drafted ahead of it, and back. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pilotfish.engine.core.ahead_growth import AheadBranch, AheadGrowth
from pilotfish.engine.core.drafts import DraftedChain
from pilotfish.engine.core.kv_cache import KVCache
from pilotfish.engine.core.sequence import AheadTask, EngineSequence
from pilotfish.messages import AheadRequest, Proposal, Propose

MoveKV = Callable[[Sequence[tuple[int, int]]], None]
"""See Decoder.move_kv."""


def begin_ahead(sequence: EngineSequence, drafts: DraftedChain, ahead: AheadRequest) -> None:
    """Go on behind the drafts, which the KV cache holds behind the sequence's tokens, the last of them left out."""
    growth = AheadGrowth(drafts, ahead)
    if growth.has_room:
        sequence.task = AheadTask(growth)


def settle(sequence: EngineSequence, command: Propose, kv_cache: KVCache, move_kv: MoveKV | None) -> AheadBranch | None:
    """Keep what was drafted ahead and came true, and end the rest; the branch that assumed just what is committed now.

    Appends the command's tokens as far as they are in the KV cache already.
    """
    task, start = sequence.task, command.base_length - len(command.new_token_ids)
    if not isinstance(task, AheadTask):
        return None
    sequence.task = None
    if move_kv is None or start != len(sequence.tokens):
        return None
    path, branch = task.growth.follow(command.new_token_ids)
    moves = kv_cache.path_moves(sequence, start, path)
    if moves:
        move_kv(moves)
    num_known = min(len(path), len(command.new_token_ids))
    sequence.append(command.new_token_ids[:num_known], committed=True)
    sequence.num_computed_tokens += num_known
    return branch if command.tree is None else None


def resume(
    sequence: EngineSequence, branch: AheadBranch, command: Propose, ahead: AheadRequest | None
) -> Proposal | None:
    """Go on with a draft that was made ahead of what is committed now; the proposal, if it is asked for.

    The KV cache holds the draft behind the sequence's tokens, its last token left out.
    """
    drafts = branch.drafts.first(command.num_draft_tokens)
    if ahead is not None:
        begin_ahead(sequence, drafts, ahead)
    return None if command.is_prepared else drafts.drafts.proposal(sequence.sequence_id, command.base_length)


def go_on(sequence: EngineSequence, branch: AheadBranch) -> None:
    """Go on in the middle of a draft that was being made ahead of what is committed now: no step was in vain."""
    sequence.append(branch.drafts.token_ids, committed=False)
    sequence.num_computed_tokens = len(sequence.tokens) - 1
