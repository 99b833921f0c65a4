"""Whether a proposal is one that a working drafter would make: the target must never see others."""

from __future__ import annotations

from pilotfish.errors import InvalidRequestError
from pilotfish.messages import Proposal
from pilotfish.rpc.replica.validation import check_drafts, draft_depth
from pilotfish.types import TreeRequest


def check_proposal(
    proposal: Proposal, num_tokens: int, tree: TreeRequest | None, vocab_size: int, *, needs_probs: bool
) -> None:
    """Raises InvalidRequestError for more than was asked for, and for what the target would refuse or must never see.

    needs_probs: each token was drawn from a distribution that comes with it; others' distributions are ignored.
    """
    token_ids, probs = proposal.draft_token_ids, proposal.draft_probs if needs_probs else ()
    num_drafts, depth = len(token_ids), draft_depth(proposal.parents, len(token_ids))
    max_drafts = num_tokens if tree is None else max(num_tokens, tree.max_nodes)
    if depth > num_tokens or num_drafts > max_drafts:
        raise InvalidRequestError(
            f"{num_drafts} draft tokens of depth {depth} came where {max_drafts} of depth {num_tokens} were asked for"
        )
    check_drafts(token_ids, probs, vocab_size)
    if not needs_probs:
        return
    drawn_from = [dict(zip(each.token_ids, each.probs, strict=False)) for each in probs]
    if len(probs) != num_drafts or any(
        prob_of.get(token_id, 0.0) <= 0 for token_id, prob_of in zip(token_ids, drawn_from, strict=True)
    ):
        raise InvalidRequestError("a draft token was not drawn from the distribution that came with it")
