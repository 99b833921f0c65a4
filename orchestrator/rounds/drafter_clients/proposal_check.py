"""Whether a proposal is one that a working drafter would make: the target must never see others."""

from __future__ import annotations

from pilotfish.errors import PilotfishError
from pilotfish.messages import MAX_DRAFT_CANDIDATES, Proposal
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import TreeRequest


class GarbageError(PilotfishError):
    """A proposal that no working drafter would make."""


def check_proposal(
    proposal: Proposal, num_tokens: int, tree: TreeRequest | None, vocab_size: int, *, needs_probs: bool
) -> None:
    """Raises GarbageError for more than was asked for, for what is no tree, and for what the target must never see."""
    _check_shape(proposal, num_tokens, tree)
    _check_tokens(proposal, vocab_size, needs_probs=needs_probs)


def _check_shape(proposal: Proposal, num_tokens: int, tree: TreeRequest | None) -> None:
    num_drafts, parents = len(proposal.draft_token_ids), proposal.parents
    if parents and len(parents) != num_drafts:
        raise GarbageError(f"{num_drafts} draft tokens came with {len(parents)} parents")
    try:
        depth = DraftTree(parents).depth if parents else num_drafts
    except ValueError as error:
        raise GarbageError(str(error)) from None
    max_drafts = num_tokens if tree is None else max(num_tokens, tree.max_nodes)
    if depth > num_tokens or num_drafts > max_drafts:
        raise GarbageError(
            f"{num_drafts} draft tokens of depth {depth} came where {max_drafts} of depth {num_tokens} were asked for"
        )


def _check_tokens(proposal: Proposal, vocab_size: int, *, needs_probs: bool) -> None:
    token_ids, probs = proposal.draft_token_ids, proposal.draft_probs
    if any(not 0 <= token_id < vocab_size for token_id in token_ids):
        raise GarbageError("a draft token is not in the vocabulary")
    if not needs_probs:
        return
    if len(probs) != len(token_ids):
        raise GarbageError(f"{len(token_ids)} draft tokens came with {len(probs)} distributions")
    if any(len(distribution.token_ids) > MAX_DRAFT_CANDIDATES for distribution in probs):
        raise GarbageError(f"a draft distribution has more than {MAX_DRAFT_CANDIDATES} tokens")
    for token_id, distribution in zip(token_ids, probs, strict=True):
        is_known = all(0 <= candidate < vocab_size for candidate in distribution.token_ids)
        prob = dict(zip(distribution.token_ids, distribution.probs, strict=False)).get(token_id, 0.0)
        if not (distribution.is_sound and is_known and prob > 0):
            raise GarbageError("a draft distribution is not one, or its token was not drawn from it")
