"""Checks commands and turns them into tasks.

Rewind by statement: every item says which committed length it stands on, so that repeated and late
items are recognised. What cannot be served as its sequence stands is answered with a SequenceError; what no sequence
could be served was refused before (pilotfish.rpc.replica.validation).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from pilotfish.engine.core.cache.kv_cache import KVCache
from pilotfish.engine.core.drafts import DraftedChain, Drafts
from pilotfish.engine.core.predraft_growth import PredraftBranch
from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.engine.core.task import PredraftTask, ProposeTask
from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.messages import (
    Decode,
    OpenSequence,
    Predrafted,
    PredraftRequest,
    Proposal,
    Propose,
    SequenceError,
    Verdict,
    Verify,
)
from pilotfish.speculation.common_prefix import num_common_tokens
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import AcceptanceMode, SequenceErrorCode, SparseDistribution

logger = logging.getLogger(__name__)

MoveKV = Callable[[Sequence[tuple[int, int]]], None]
"""See Decoder.move_kv."""


class Intake:
    """Owns which sequences are open; every method answers None or the error to send back."""

    def __init__(
        self,
        sequences: dict[int, EngineSequence],
        kv_cache: KVCache,
        *,
        max_context_tokens: int,
        move_kv: MoveKV | None = None,
    ) -> None:
        """move_kv: the decoder's; None: a head's, which keeps no keys and values of what was drafted ahead, as those of
        committed tokens come from features."""
        self._sequences = sequences
        self._kv_cache = kv_cache
        self._max_context_tokens = max_context_tokens
        self._move_kv = move_kv
        self._capacity = kv_cache.pool.num_usable * kv_cache.pool.block_size
        self._num_opened = 0
        self._prepared: dict[int, Predrafted] = {}
        """What each sequence verifies after the verification under way, by how that ends."""

    def open(self, command: OpenSequence) -> SequenceError | None:
        num_tokens = len(command.prompt_token_ids) + len(command.output_token_ids)
        if num_tokens >= self._capacity:
            message = (
                f"prompt and output have {num_tokens} tokens; the KV cache holds {self._capacity}: "
                "raise engine.kv_cache_tokens"
            )
            return SequenceError(command.sequence_id, SequenceErrorCode.RESOURCE_EXHAUSTED, message)
        self._num_opened += 1
        self._sequences[command.sequence_id] = EngineSequence(command, self._num_opened)
        return None

    def verify(self, command: Verify, now_ns: int) -> SequenceError | None:
        """Drafts end a run if they foresaw what it has decoded since; if not, it goes on and nothing is answered."""
        sequence = self._sequences.get(command.sequence_id)
        if sequence is None:
            return SequenceError.unknown(command.sequence_id, command.base_length)
        if sequence.run is not None and command.base_length < len(sequence.tokens):
            rest = _rest_after(command, sequence.tokens[command.base_length :])
            if rest is None:
                return None
            command = rest
        if command.base_length != len(sequence.tokens):
            return _stale(sequence, command.base_length)
        drafts = self._drafts(sequence, command.draft_token_ids, command.draft_probs, command.parents)
        if drafts is None:
            message = f"{len(command.draft_token_ids)} draft tokens with {len(command.draft_probs)} distributions"
            return SequenceError(command.sequence_id, SequenceErrorCode.INVALID, message, command.base_length)
        sequence.takes_forced_drafts = command.takes_forced_drafts
        if drafts or sequence.run is None:
            asked_of_run = None if sequence.run is None else sequence.feature_request
            sequence.verify(drafts, command.features or asked_of_run, now_ns)
        return None

    def _drafts(
        self,
        sequence: EngineSequence,
        token_ids: tuple[int, ...],
        probs: tuple[SparseDistribution, ...],
        parents: tuple[int, ...] = (),
    ) -> Drafts | None:
        """What can be verified of them; None where they lack the distributions that they were drawn from."""
        needs_probs = sequence.sampling.acceptance is AcceptanceMode.REJECTION and not sequence.sampling.is_greedy
        if needs_probs and len(probs) != len(token_ids):
            return None
        # Drafts past the end of the answer could never be used; without them the cache may hold what is left.
        room = min(
            self._max_context_tokens - len(sequence.tokens),
            sequence.sampling.max_tokens - sequence.num_output_tokens,
        )
        tree = DraftTree(parents)
        drafts = Drafts(token_ids, probs, None if tree.is_chain else tree)
        return drafts.cut(room - 1, self._capacity - len(sequence.tokens))

    def prepare(self, command: Predrafted) -> None:
        """Keep them for the next verdict; what is of no use is not worth an error."""
        if command.sequence_id in self._sequences:
            self._prepared[command.sequence_id] = command

    def go_on(self, verdict: Verdict, now_ns: int) -> Verdict:
        """Begin to verify what was prepared for just the tokens of the verdict, which then says so."""
        sequence = self._sequences.get(verdict.sequence_id)
        is_verification = verdict.num_draft_tokens > 0  # plain steps may be joined
        if sequence is None or sequence.task is not None or not is_verification:
            return verdict
        prepared = self._prepared.pop(verdict.sequence_id, None)
        if prepared is None:
            return verdict
        draft = prepared.draft(verdict.token_ids) if prepared.base_length == verdict.base_length else None
        drafts = None if draft is None else self._drafts(sequence, draft.draft_token_ids, draft.draft_probs)
        if not drafts:
            return verdict
        sequence.verify(drafts, sequence.feature_request, now_ns)
        return msgspec.structs.replace(verdict, num_next_draft_tokens=len(drafts))

    def decode(self, command: Decode, now_ns: int) -> SequenceError | None:
        """A run that overlaps the one in progress moves its goal, so that runs can be chained without a gap."""
        sequence = self._sequences.get(command.sequence_id)
        if sequence is None:
            return SequenceError.unknown(command.sequence_id, command.base_length)
        if command.base_length > len(sequence.tokens):
            return _stale(sequence, command.base_length)
        sequence.decode(command, now_ns)
        return None

    def propose(self, command: Propose, now_ns: int) -> SequenceError | Proposal | None:
        """A draft that was made ahead is the answer at once."""
        sequence = self._sequences.get(command.sequence_id)
        start = command.base_length - len(command.new_token_ids)
        if sequence is None or not sequence.num_prompt_tokens <= start <= sequence.num_committed_tokens:
            return SequenceError.unknown(command.sequence_id, command.base_length)
        branch = self._settle(sequence, command)
        common = start + num_common_tokens(sequence.tokens[start:], command.new_token_ids)
        if common < len(sequence.tokens):
            self._kv_cache.rewind(sequence, common)
        sequence.append(command.new_token_ids[common - start :], committed=True)
        ahead = self._ahead(command)
        if branch is not None and len(branch.drafts) >= command.num_draft_tokens:
            drafts = branch.drafts.first(command.num_draft_tokens)
            if ahead is not None:
                sequence.draft_ahead(drafts, ahead, command.num_draft_tokens)
            return None if command.is_prepared else drafts.drafts.proposal(sequence.sequence_id, command.base_length)
        if branch is None:
            # The last token's logits are wanted even if drafting already computed it.
            self._kv_cache.recompute_from(sequence, len(sequence.tokens) - 1)
            if command.is_prepared and self._move_kv is None:
                sequence.rest()  # what a head would draft now is not what is being verified
                return None
        else:  # in the middle of the draft: no step was in vain
            sequence.append(branch.drafts.token_ids, committed=False)
            sequence.mark_computed(len(sequence.tokens) - 1)
        num_drafts = min(command.num_draft_tokens, self._max_context_tokens - command.base_length)
        tree, growth = command.tree, None
        if tree is not None:
            growth = TreeProposal(tree, num_drafts, min_node_confidence=tree.row_price)
        sequence.propose(
            ProposeTask(
                base_length=command.base_length,
                num_draft_tokens=num_drafts,
                tree=tree,
                growth=growth,
                chain=DraftedChain() if branch is None else branch.drafts,
                ahead=ahead,
                is_prepared=command.is_prepared,
                arrival_ns=now_ns,
            )
        )
        return None

    def _settle(self, sequence: EngineSequence, command: Propose) -> PredraftBranch | None:
        """Keep what was drafted ahead and came true, and end the rest; the branch that assumed just what is committed
        now.

        Appends the command's tokens as far as they are in the KV cache already.
        """
        task, start = sequence.task, command.base_length - len(command.new_token_ids)
        if not isinstance(task, PredraftTask):
            return None
        sequence.rest()
        if start != len(sequence.tokens):
            return None
        path, branch = task.growth.follow(command.new_token_ids)
        if command.tree is not None:
            branch = None
        if self._move_kv is None:
            return branch and branch.to_follow(command.num_draft_tokens)
        if moves := self._kv_cache.path_moves(sequence, start, path):
            self._move_kv(moves)
        num_known = min(len(path), len(command.new_token_ids))
        sequence.append(command.new_token_ids[:num_known], committed=True)
        sequence.mark_computed(sequence.num_computed_tokens + num_known)
        return branch

    def _ahead(self, command: Propose) -> PredraftRequest | None:
        """What may be drafted ahead: nothing of trees, and nothing past the end of the context."""
        end = command.base_length + 2 * command.num_draft_tokens + 1
        return command.ahead if command.tree is None and end < self._max_context_tokens else None

    def forget(self, sequence: EngineSequence) -> None:
        """Release the sequence's blocks and its slot."""
        self._kv_cache.release(sequence)
        del self._sequences[sequence.sequence_id]
        self._prepared.pop(sequence.sequence_id, None)
        if sequence.lookup is not None:
            try:
                sequence.lookup.finish()
            except Exception:
                # Fail open, as all that drafters do in the target.
                logger.exception("a lookup could not take in a sequence that has ended")


def _stale(sequence: EngineSequence, base_length: int) -> SequenceError:
    message = f"the item stands on {base_length} tokens; {len(sequence.tokens)} are committed"
    return SequenceError(sequence.sequence_id, SequenceErrorCode.STALE, message, base_length)


def _rest_after(command: Verify, decoded: Sequence[int]) -> Verify | None:
    """The command as it is once `decoded` came after its base; None when its drafts (a chain) foresaw that not."""
    num_decoded = len(decoded)
    foreseen = command.draft_token_ids[:num_decoded]
    if command.parents or foreseen != tuple(decoded):
        return None
    return msgspec.structs.replace(
        command,
        base_length=command.base_length + num_decoded,
        draft_token_ids=command.draft_token_ids[num_decoded:],
        # Drawn given the tokens before, whoever those came from: exact acceptance can stand on them still.
        draft_probs=command.draft_probs[num_decoded:],
    )
