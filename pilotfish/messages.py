"""Commands to an engine and its events: the same items as in the protos, as plain values.

They cross three borders unchanged in meaning: gRPC (converted in pilotfish.rpc), a socket between a
replica's gRPC front and its engine process (msgspec), and a method call in tests. Field meanings
are those of the messages with the same names in protos/pilotfish/v1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import ClassVar

import msgspec

from pilotfish.errors import (
    InternalError,
    InvalidRequestError,
    PilotfishError,
    ResourceExhaustedError,
    UnavailableError,
)
from pilotfish.features import FeatureRequest, Features
from pilotfish.types import (
    FinishReason,
    SamplingParams,
    SequenceErrorCode,
    SparseDistribution,
    Timings,
    TokenLogprobs,
    TokenOrigin,
    TreeRequest,
)

MAX_DRAFT_CANDIDATES = 1024
"""Tokens of a draft distribution: the target goes through them at each draft that it verifies."""
MAX_AHEAD_TOKENS = 1024
"""Draft tokens that one Propose may ask for ahead: more than pays on any hardware."""


class OpenSequence(msgspec.Struct, frozen=True, tag=True):
    """Start a sequence, or restart one from prompt + committed output."""

    sequence_id: int
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    output_token_ids: tuple[int, ...] = ()
    traceparent: str = ""
    """W3C Trace Context of the request; empty: it is not traced."""
    cache_salt: str = ""
    """Cached prefixes, and outputs for lookups, are shared among sequences of the same salt only."""
    client: str = ""
    """Client whose grammars are compiled in turn with others': a name that the peer makes up."""
    learn_as: str = ""
    """The request's id, if its text may be kept to train the drafter; empty: nothing of it is kept."""


class Verify(msgspec.Struct, frozen=True, tag=True):
    """Verify draft tokens that stand on base_length committed tokens; answered by one Verdict."""

    sequence_id: int
    base_length: int
    draft_token_ids: tuple[int, ...]
    draft_probs: tuple[SparseDistribution, ...] = ()
    parents: tuple[int, ...] = ()
    features: FeatureRequest | None = None
    takes_forced_drafts: bool = False


class Decode(msgspec.Struct, frozen=True, tag=True):
    """Decode num_tokens tokens freely; answered by one Verdict per step.

    With num_draft_tokens, steps verify drafts of the drafter in the target, if it has one.
    """

    sequence_id: int
    base_length: int
    num_tokens: int
    num_draft_tokens: int = 0
    features: FeatureRequest | None = None
    tree: TreeRequest | None = None
    takes_forced_drafts: bool = False
    """Whether steps also verify what the sequence's grammar forces."""


class PredraftRequest(msgspec.Struct, frozen=True, array_like=True):
    """What a drafter may draft while the target verifies; see pilotfish.v1.AheadRequest."""

    max_tokens: int
    """Draft tokens over all assumed outcomes, at most."""
    acceptance: tuple[float, ...]
    """Element i: probability that draft token i is accepted if all before it are; of further ones as of the last."""


class Propose(msgspec.Struct, frozen=True, tag=True):
    """Propose tokens after base_length committed ones, of which new_token_ids are the last."""

    sequence_id: int
    base_length: int
    new_token_ids: tuple[int, ...]
    num_draft_tokens: int
    features: Features | None = None
    tree: TreeRequest | None = None
    """The draft may branch; num_draft_tokens is then its depth. None: a chain."""
    ahead: PredraftRequest | None = None
    """None: nothing is drafted ahead."""
    is_prepared: bool = False
    """The draft on these tokens was prepared and is being verified: nothing but drafting ahead is wanted."""

    @property
    def unpriced_tree(self) -> TreeRequest | None:
        """The tree for who cannot tell which nodes are worth a price: none where there is one."""
        return None if self.tree is None or self.tree.row_price else self.tree


class LearnVocabulary(msgspec.Struct, frozen=True, tag=True):
    """The tokens that a draft model has in common with a target of another vocabulary, once for all sequences.

    This and UseVocabulary are said within a draft service alone (draft_service.translation).
    """

    vocabulary: int
    """What UseVocabulary calls it; not 0."""
    drafter_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    """Element i: the target's token that drafter_ids[i] stands for."""
    sequence_id: ClassVar[int] = -1
    """No sequence's: the command is for all."""


class UseVocabulary(msgspec.Struct, frozen=True, tag=True):
    """From the next Propose on, a sequence's drafts are chosen among the tokens of a vocabulary, as by its target."""

    sequence_id: int
    vocabulary: int = 0
    """One that was learned; 0: the draft model's own, and the sequence's own sampling."""
    sampling: SamplingParams = SamplingParams()
    """How tokens are chosen."""
    position_shift: int = 0
    """Added to the draft model's positions, this makes those in the target's text, whose noise is shared."""


class CloseSequence(msgspec.Struct, frozen=True, tag=True):
    """Free everything held for the sequence; unknown ids are ignored."""

    sequence_id: int
    is_finished: bool = False
    """Whether the answer came to its end; else nothing is kept of it, whatever learn_as allows."""


class Opened(msgspec.Struct, frozen=True, tag=True):
    """The prompt's first prefill step ran; num_cached_tokens came from the prefix cache."""

    sequence_id: int
    num_cached_tokens: int


class Verdict(msgspec.Struct, frozen=True, tag=True):
    """Tokens committed by one verification or by plain decode steps that follow one another.

    The first num_accepted_tokens of token_ids are accepted drafts; at most one more follows. All are plain where
    there was no draft.
    """

    sequence_id: int
    base_length: int
    num_draft_tokens: int
    num_accepted_tokens: int
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    timings: Timings = Timings()
    draft_depth: int = 0
    """A tree's depth; a chain's is num_draft_tokens."""
    ended_in_leaf: bool = False
    """Whether a tree's accepted path ended in a leaf."""
    features: Features | None = None
    """Features that the command asked for; None where the target keeps none."""
    num_next_draft_tokens: int = 0
    """Prepared drafts that the target verifies now without being asked; 0: it waits for a command."""
    first_grammar_token: int = 0
    """Place among the drafts of the first one that only the grammar drafted."""
    num_grammar_tokens: int = 0
    """Drafts from there on that the grammar alone drafted."""
    replaces_draft: bool = False
    """Whether they stand for a peer's draft, none of which was left: the verification ends a run as any other."""
    drafter_version: int = 0
    """Version of the head in the target that drafted; 0: the configured one, or another drafter."""

    @property
    def num_accepted_grammar_tokens(self) -> int:
        """Accepted ones of them."""
        return max(0, min(self.num_accepted_tokens - self.first_grammar_token, self.num_grammar_tokens))

    @property
    def num_accepted_drafts(self) -> int:
        """Accepted ones of the drafter's."""
        return self.num_accepted_tokens - self.num_accepted_grammar_tokens

    @property
    def is_plain_or_forced(self) -> bool:
        """Whether no drafter drafted for it, though a grammar may have."""
        return self.num_draft_tokens == self.num_grammar_tokens and not self.replaces_draft

    @property
    def depth(self) -> int:
        """Tokens on the longest path of the draft."""
        return self.draft_depth or self.num_draft_tokens

    @property
    def origins(self) -> tuple[TokenOrigin, ...]:
        """The origin of each of token_ids."""
        num_tokens, num_accepted = len(self.token_ids), self.num_accepted_tokens
        if self.num_draft_tokens == 0:
            return (TokenOrigin.PLAIN,) * num_tokens
        num_forced, first = self.num_accepted_grammar_tokens, self.first_grammar_token
        origins = (TokenOrigin.ACCEPTED,) * num_accepted
        if num_forced:
            origins = (*origins[:first], *(TokenOrigin.GRAMMAR,) * num_forced, *origins[first + num_forced :])
        if num_tokens == num_accepted:
            return origins
        is_bonus = self.ended_in_leaf or num_accepted == self.num_draft_tokens
        return (*origins, TokenOrigin.BONUS if is_bonus else TokenOrigin.RECOVERED)

    def continues_plainly(self, earlier: Verdict) -> bool:
        """Whether both are plain steps of one sequence, this one right after the earlier one."""
        return (
            self.num_draft_tokens == 0 == earlier.num_draft_tokens
            and earlier.finish_reason is None
            and earlier.features is None
            and earlier.base_length + len(earlier.token_ids) == self.base_length
        )


def join_plain(verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict for plain steps of which each `continues_plainly` the one before; at least one."""
    first, last = verdicts[0], verdicts[-1]
    return Verdict(
        first.sequence_id,
        first.base_length,
        0,
        0,
        tuple(chain.from_iterable(verdict.token_ids for verdict in verdicts)),
        logprobs=tuple(chain.from_iterable(verdict.logprobs for verdict in verdicts)),
        finish_reason=last.finish_reason,
        timings=Timings(first.timings.queue_time_ns, sum(verdict.timings.compute_time_ns for verdict in verdicts)),
        features=last.features,
    )


class Proposal(msgspec.Struct, frozen=True, tag=True):
    """Draft tokens that stand on base_length; empty when the drafter has no idea."""

    sequence_id: int
    base_length: int
    draft_token_ids: tuple[int, ...]
    draft_probs: tuple[SparseDistribution, ...] = ()
    timings: Timings = Timings()
    parents: tuple[int, ...] = ()
    """A tree's parents, as in Verify; empty for a chain."""
    drafter_version: int = 0
    """Version of the head that drafted; 0: the configured one, or another drafter."""


class Predrafted(msgspec.Struct, frozen=True, tag=True):
    """Drafts made ahead, for ways in which the verification of the last Proposal may end.

    The drafter sends them unasked; handed to the target, they let it go on without a round trip.
    """

    sequence_id: int
    base_length: int
    verified_token_ids: tuple[int, ...]
    """The drafts that are being verified, on base_length committed tokens."""
    num_accepted_tokens: tuple[int, ...]
    """Accepted of the verified drafts, in outcome i."""
    own_token_ids: tuple[int, ...]
    """The target's own after them, in outcome i."""
    draft_token_ids: tuple[int, ...]
    """The draft of outcome 0, then that of outcome 1, ...; all are of the same length."""
    draft_probs: tuple[SparseDistribution, ...] = ()
    """One per token in rejection mode."""
    drafter_version: int = 0
    """As in Proposal."""

    @property
    def outcomes(self) -> tuple[tuple[int, ...], ...]:
        """The tokens that each outcome commits after base_length."""
        return tuple(
            (*self.verified_token_ids[:num_accepted], token_id)
            for num_accepted, token_id in zip(self.num_accepted_tokens, self.own_token_ids, strict=True)
        )

    def draft(self, committed_token_ids: tuple[int, ...]) -> Proposal | None:
        """The draft for just these tokens after base_length."""
        num_accepted = len(committed_token_ids) - 1
        if num_accepted < 0 or self.verified_token_ids[:num_accepted] != committed_token_ids[:-1]:
            return None
        outcomes = enumerate(zip(self.num_accepted_tokens, self.own_token_ids, strict=False))
        wanted = num_accepted, committed_token_ids[-1]
        index = next((index for index, outcome in outcomes if outcome == wanted), None)
        if index is None:
            return None
        length = len(self.draft_token_ids) // len(self.own_token_ids)
        own = slice(index * length, (index + 1) * length)
        base_length = self.base_length + len(committed_token_ids)
        return Proposal(
            self.sequence_id,
            base_length,
            self.draft_token_ids[own],
            self.draft_probs[own],
            drafter_version=self.drafter_version,
        )


class SequenceError(msgspec.Struct, frozen=True, tag=True):
    """One sequence failed; the others go on."""

    sequence_id: int
    code: SequenceErrorCode
    message: str
    base_length: int = 0
    param: str = ""
    """The sampling parameter that is at fault; empty when it is none."""

    @classmethod
    def unknown(cls, sequence_id: int, base_length: int) -> SequenceError:
        """The sequence is not there, or not all of it: who asked opens it anew."""
        message = "unknown sequence, or tokens before the stated ones are missing: open it with all committed tokens"
        return cls(sequence_id, SequenceErrorCode.UNKNOWN_SEQUENCE, message, base_length)

    def error(self, peer: str) -> PilotfishError:
        """What to raise for it. peer: who sent it, for the message."""
        error = _ERRORS[self.code](f"{peer}: {self.message}")
        if isinstance(error, InvalidRequestError):
            error.param = self.param or None
        return error


_ERRORS: dict[SequenceErrorCode, type[PilotfishError]] = {
    SequenceErrorCode.UNKNOWN_SEQUENCE: UnavailableError,
    SequenceErrorCode.STALE: InternalError,
    SequenceErrorCode.INVALID: InvalidRequestError,
    SequenceErrorCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    SequenceErrorCode.UNAVAILABLE: UnavailableError,
    SequenceErrorCode.INTERNAL: InternalError,
}


TargetCommand = OpenSequence | Verify | Decode | Predrafted | CloseSequence
Command = OpenSequence | Verify | Decode | Propose | Predrafted | CloseSequence
EngineCommand = Command | LearnVocabulary | UseVocabulary
"""A command to an engine; its own service alone sends the last two."""
DraftEvent = Proposal | Predrafted | SequenceError
Event = Opened | Verdict | Proposal | Predrafted | SequenceError
