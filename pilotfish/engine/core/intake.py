"""Checks commands and turns them into tasks.

Rewind by statement: every item says which committed length it stands on, so that repeated and late
items are recognised. What cannot be served is answered with a SequenceError; nothing raises.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from pilotfish.engine.core.ahead_growth import AheadBranch
from pilotfish.engine.core.drafts import DraftedChain, Drafts
from pilotfish.engine.core.kv_cache import KVCache
from pilotfish.engine.core.sequence import AheadTask, DecodeTask, EngineSequence, ProposeTask, VerifyTask
from pilotfish.engine.core.tree_proposal import TreeProposal
from pilotfish.messages import AheadRequest, Decode, OpenSequence, Proposal, Propose, SequenceError, Verify
from pilotfish.speculation.common_prefix import num_common_tokens
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import AcceptanceMode, Limits, SamplingParams, SequenceErrorCode, SparseDistribution, TreeRequest

logger = logging.getLogger(__name__)

MoveKV = Callable[[Sequence[tuple[int, int]]], None]
"""See Decoder.move_kv."""

_PROBS_TOLERANCE = 1e-3
"""Sums of float32 probabilities may be this far from 1."""


class Intake:
    """Owns which sequences are open; every method answers None or the error to send back."""

    def __init__(
        self,
        sequences: dict[int, EngineSequence],
        kv_cache: KVCache,
        *,
        vocab_size: int,
        max_context_tokens: int,
        limits: Limits,
        move_kv: MoveKV | None = None,
    ) -> None:
        """move_kv: of the decoder; without it nothing that was drafted ahead is kept."""
        self._sequences = sequences
        self._kv_cache = kv_cache
        self._vocab_size = vocab_size
        self._max_context_tokens = max_context_tokens
        self._limits = limits
        self._move_kv = move_kv
        self._capacity = kv_cache.pool.num_usable * kv_cache.pool.block_size
        self._num_opened = 0

    def open(self, command: OpenSequence) -> SequenceError | None:
        fault = self._open_fault(command)
        if fault is not None:
            return SequenceError(command.sequence_id, *fault)
        self._num_opened += 1
        self._sequences[command.sequence_id] = EngineSequence(command, self._num_opened)
        return None

    def _open_fault(self, command: OpenSequence) -> tuple[SequenceErrorCode, str] | None:
        num_tokens = len(command.prompt_token_ids) + len(command.output_token_ids)
        invalid, exhausted = SequenceErrorCode.INVALID, SequenceErrorCode.RESOURCE_EXHAUSTED
        if command.sequence_id in self._sequences:
            return invalid, "the sequence is open already"
        if not command.prompt_token_ids:
            return invalid, "the prompt is empty; send at least one token"
        if num_tokens >= self._max_context_tokens:
            return invalid, (
                f"prompt and output have {num_tokens} tokens; the context holds {self._max_context_tokens}, "
                "one of them for the next token"
            )
        if len(command.output_token_ids) >= command.sampling.max_tokens:
            return invalid, (
                f"the output has {len(command.output_token_ids)} tokens already; max_tokens is "
                f"{command.sampling.max_tokens}: nothing is left to decode"
            )
        bad = self._bad_token((*command.prompt_token_ids, *command.output_token_ids))
        bad = self._bad_token(token_id for token_id, _ in command.sampling.logit_bias) if bad is None else bad
        if bad is not None:
            return invalid, f"token id {bad} is not in the vocabulary of {self._vocab_size}"
        if num_tokens >= self._capacity:
            return exhausted, (
                f"prompt and output have {num_tokens} tokens; the KV cache holds {self._capacity}: "
                "raise engine.kv_cache_tokens"
            )
        if len(self._sequences) >= self._limits.max_sequences:
            return exhausted, f"all {self._limits.max_sequences} sequences are in use (engine.max_sequences)"
        return None

    def verify(self, command: Verify, now_ns: int) -> SequenceError | None:
        """Drafts end a run if they foresaw what it has decoded since; if not, it goes on and nothing is answered."""
        sequence = self._sequences.get(command.sequence_id)
        if sequence is None:
            return _unknown(command.sequence_id, command.base_length)
        is_in_run = isinstance(sequence.task, DecodeTask)
        if is_in_run and command.base_length < len(sequence.tokens):
            rest = _rest_after(command, sequence.tokens[command.base_length :])
            if rest is None:
                return None
            command = rest
        if command.base_length != len(sequence.tokens):
            return _stale(sequence, command.base_length)
        fault = self._draft_fault(command, sequence.sampling)
        if fault is not None:
            return _invalid(command, fault)
        # Drafts past the end of the answer could never be used; without them the cache may hold what is left.
        room = min(
            self._max_context_tokens - len(sequence.tokens),
            sequence.sampling.max_tokens - sequence.num_output_tokens,
        )
        drafts = Drafts(command.draft_token_ids, command.draft_probs, _tree_of(command))
        drafts = drafts.cut(room - 1, self._capacity - len(sequence.tokens))
        if is_in_run and not drafts:
            return None
        sequence.task = VerifyTask(drafts, now_ns)
        sequence.feature_request = command.features or sequence.feature_request
        return None

    def _draft_fault(self, command: Verify, sampling: SamplingParams) -> str | None:
        """What makes the drafts impossible to verify."""
        num_drafts = len(command.draft_token_ids)
        if num_drafts > self._limits.max_draft_tokens:
            return f"{num_drafts} draft tokens; at most {self._limits.max_draft_tokens} (engine.max_draft_tokens)"
        needs_probs = sampling.acceptance is AcceptanceMode.REJECTION and not sampling.is_greedy
        if len(command.draft_probs) != num_drafts and (needs_probs or command.draft_probs):
            return f"{num_drafts} draft tokens with {len(command.draft_probs)} distributions"
        bad = self._bad_token(command.draft_token_ids)
        bad = self._bad_token(t for probs in command.draft_probs for t in probs.token_ids) if bad is None else bad
        if bad is not None:
            return f"draft token id {bad} is not in the vocabulary of {self._vocab_size}"
        if not all(map(_is_distribution, command.draft_probs)):
            return "a draft distribution repeats a token or its probabilities do not sum to 1"
        try:
            _tree_of(command)
        except ValueError as error:
            return str(error)
        return None

    def decode(self, command: Decode, now_ns: int) -> SequenceError | None:
        """A run that overlaps the one in progress moves its goal, so that runs can be chained without a gap."""
        sequence = self._sequences.get(command.sequence_id)
        if sequence is None:
            return _unknown(command.sequence_id, command.base_length)
        if command.base_length > len(sequence.tokens):
            return _stale(sequence, command.base_length)
        sequence.feature_request = command.features
        goal = command.base_length + command.num_tokens
        num_draft_tokens = min(command.num_draft_tokens, self._limits.max_draft_tokens)
        tree = command.tree
        if tree is not None:
            tree = TreeRequest(max(1, min(tree.max_nodes, self._limits.max_draft_tokens)), max(1, tree.branching))
        if isinstance(sequence.task, DecodeTask):
            sequence.task.goal_length = max(sequence.task.goal_length, goal)
            sequence.task.num_draft_tokens, sequence.task.tree = num_draft_tokens, tree
        elif goal > len(sequence.tokens):
            sequence.task = DecodeTask(goal, now_ns, num_draft_tokens, tree)
        return None

    def propose(self, command: Propose, now_ns: int) -> SequenceError | Proposal | None:
        """A draft that was made ahead is the answer at once."""
        sequence = self._sequences.get(command.sequence_id)
        start = command.base_length - len(command.new_token_ids)
        if sequence is None or not sequence.num_prompt_tokens <= start <= sequence.num_committed_tokens:
            return _unknown(command.sequence_id, command.base_length)
        bad = self._bad_token(command.new_token_ids)
        if bad is not None:
            return _invalid(command, f"token id {bad} is not in the vocabulary of {self._vocab_size}")
        most, tree = self._limits.max_draft_tokens, command.tree
        if not 1 <= command.num_draft_tokens <= most:
            return _invalid(command, f"{command.num_draft_tokens} draft tokens wanted; 1 to {most} are possible")
        if tree is not None and not (1 <= tree.max_nodes <= most and tree.branching >= 1):
            return _invalid(command, f"a tree needs a branching of at least 1 and 1 to {most} nodes")
        if command.base_length >= self._max_context_tokens:
            return _invalid(command, f"the draft model's context of {self._max_context_tokens} tokens is full")
        branch = self._settle(sequence, command)
        common = start + num_common_tokens(sequence.tokens[start:], command.new_token_ids)
        if common < len(sequence.tokens):
            self._kv_cache.rewind(sequence, common)
        sequence.append(command.new_token_ids[common - start :], committed=True)
        sequence.num_committed_tokens = len(sequence.tokens)
        ahead = self._ahead(command)
        if branch is not None and len(branch.drafts) >= command.num_draft_tokens:
            drafts = branch.drafts.first(command.num_draft_tokens)
            if ahead is not None:
                sequence.draft_ahead(drafts, ahead)
            return None if command.is_prepared else drafts.drafts.proposal(sequence.sequence_id, command.base_length)
        if branch is None:
            # The last token's logits are wanted even if drafting already computed it.
            self._kv_cache.recompute_from(sequence, len(sequence.tokens) - 1)
        else:  # in the middle of the draft: no step was in vain
            sequence.append(branch.drafts.token_ids, committed=False)
            sequence.num_computed_tokens = len(sequence.tokens) - 1
        num_drafts = min(command.num_draft_tokens, self._max_context_tokens - command.base_length)
        growth = None if tree is None else TreeProposal(tree, num_drafts)
        sequence.task = ProposeTask(
            command.base_length,
            num_drafts,
            now_ns,
            tree=tree,
            growth=growth,
            drafts=DraftedChain() if branch is None else branch.drafts,
            ahead=ahead,
            is_prepared=command.is_prepared,
        )
        return None

    def _settle(self, sequence: EngineSequence, command: Propose) -> AheadBranch | None:
        """Keep what was drafted ahead and came true, and end the rest; the branch that assumed just what is committed
        now.

        Appends the command's tokens as far as they are in the KV cache already.
        """
        task, start = sequence.task, command.base_length - len(command.new_token_ids)
        if not isinstance(task, AheadTask):
            return None
        sequence.task = None
        if self._move_kv is None or start != len(sequence.tokens):
            return None
        path, branch = task.growth.follow(command.new_token_ids)
        if moves := self._kv_cache.path_moves(sequence, start, path):
            self._move_kv(moves)
        num_known = min(len(path), len(command.new_token_ids))
        sequence.append(command.new_token_ids[:num_known], committed=True)
        sequence.num_computed_tokens += num_known
        return branch if command.tree is None else None

    def _ahead(self, command: Propose) -> AheadRequest | None:
        """What may be drafted ahead: nothing of trees, and nothing past the end of the context."""
        end = command.base_length + 2 * command.num_draft_tokens + 1
        return command.ahead if command.tree is None and end < self._max_context_tokens else None

    def forget(self, sequence: EngineSequence) -> None:
        """Release the sequence's blocks and its slot."""
        self._kv_cache.release(sequence)
        del self._sequences[sequence.sequence_id]
        if sequence.lookup_index is not None:
            try:
                sequence.lookup_index.finish(sequence.num_prompt_tokens)
            except Exception:
                # Fail open, as all that drafters do in the target.
                logger.exception("a lookup could not take in a sequence that has ended")

    def _bad_token(self, token_ids: Iterable[int]) -> int | None:
        return next((token_id for token_id in token_ids if not 0 <= token_id < self._vocab_size), None)


def _unknown(sequence_id: int, base_length: int) -> SequenceError:
    message = "unknown sequence, or tokens before the stated ones are missing: open it with all committed tokens"
    return SequenceError(sequence_id, SequenceErrorCode.UNKNOWN_SEQUENCE, message, base_length)


def _stale(sequence: EngineSequence, base_length: int) -> SequenceError:
    message = f"the item stands on {base_length} tokens; {len(sequence.tokens)} are committed"
    return SequenceError(sequence.sequence_id, SequenceErrorCode.STALE, message, base_length)


def _invalid(command: Verify | Propose, message: str) -> SequenceError:
    return SequenceError(command.sequence_id, SequenceErrorCode.INVALID, message, command.base_length)


def _rest_after(command: Verify, decoded: Sequence[int]) -> Verify | None:
    """The command as it is once `decoded` came after its base; None when its drafts (a chain) foresaw that not."""
    num_decoded = len(decoded)
    foreseen = command.draft_token_ids[:num_decoded]
    if command.parents or num_decoded >= len(command.draft_token_ids) or foreseen != tuple(decoded):
        return None
    return msgspec.structs.replace(
        command,
        base_length=command.base_length + num_decoded,
        draft_token_ids=command.draft_token_ids[num_decoded:],
        # Drawn given the tokens before, whoever those came from: exact acceptance can stand on them still.
        draft_probs=command.draft_probs[num_decoded:],
    )


def _tree_of(command: Verify) -> DraftTree | None:
    """The shape of the drafts; None for a chain. Raises ValueError for parents that make no tree."""
    if not command.parents:
        return None
    if len(command.parents) != len(command.draft_token_ids):
        raise ValueError(f"{len(command.draft_token_ids)} draft tokens with {len(command.parents)} parents")
    tree = DraftTree(command.parents)
    return None if tree.is_chain else tree


def _is_distribution(distribution: SparseDistribution) -> bool:
    """Whether exact acceptance can stand on it: distinct tokens with probabilities that sum to 1."""
    token_ids, probs = distribution.token_ids, distribution.probs
    return (
        len(set(token_ids)) == len(token_ids) == len(probs)
        and min(probs, default=-1.0) >= 0
        and math.isclose(sum(probs), 1.0, abs_tol=_PROBS_TOLERANCE)  # false for NaN too
    )
