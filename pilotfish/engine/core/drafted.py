"""What a step of a drafter adds to the drafts of a sequence, and the proposals that it completes. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.task import PredraftTask, ProposeTask
from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.messages import DraftEvent
from pilotfish.speculation.results import DraftToken
from pilotfish.speculation.trees.growth import Candidate


@dataclass(slots=True)
class Drafted:
    """What a drafter's forward says of one sequence: of each row of its plan, what was asked for."""

    drafts: Sequence[DraftToken] = ()
    """The next token of its chain, or of each of those that are drafted ahead."""
    candidates: Sequence[Sequence[Candidate]] = ()
    """Candidates of each node that a tree expands, or at each draft's position where something is drafted ahead."""


def add_drafted(sequence: EngineSequence, drafted: Drafted) -> DraftEvent | None:
    """Add what was drafted; the proposal, or what was made ahead, once it is complete."""
    match sequence.task:
        case PredraftTask(growth=growth):
            if growth.is_choosing:
                growth.choose(drafted.candidates)
            elif growth.extend([(one.token_id, one.probs) for one in drafted.drafts], drafted.candidates):
                return growth.prepared(sequence.sequence_id, len(sequence.tokens))
            return None
        case ProposeTask(growth=TreeProposal() as growth) as task:
            growth.extend(drafted.candidates)
            if not growth.is_done:
                return None
            sequence.rest()
            return growth.drafts(sequence.sampling).proposal(sequence.sequence_id, task.base_length, task.timings)
        case ProposeTask() as task:
            return _add_to_chain(sequence, task, drafted)
        case task:
            raise AssertionError(f"{task} drafts nothing")


def _add_to_chain(sequence: EngineSequence, task: ProposeTask, drafted: Drafted) -> DraftEvent | None:
    (chosen,) = drafted.drafts
    sequence.append((chosen.token_id,), committed=False)
    task.chain.add(chosen.token_id, chosen.probs, drafted.candidates[0] if drafted.candidates else None)
    if len(task.chain) < task.num_draft_tokens:
        return None
    sequence.rest()
    if task.ahead is not None:
        # The drafts stay where they are in the KV cache, as the first nodes of a tree.
        sequence.truncate(task.base_length)
        sequence.draft_ahead(task.chain, task.ahead, task.num_draft_tokens)
    if task.is_prepared:
        return None
    return task.chain.drafts.proposal(sequence.sequence_id, task.base_length, task.timings)
