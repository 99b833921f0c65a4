"""One sequence in both vocabularies."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import msgspec

from draft_service.translation.method import Method, shared_sampling, text_sampling
from draft_service.translation.target_text import TargetText
from draft_service.translation.text_tokens import TextTokens
from draft_service.translation.vocabularies import Vocabularies
from pilotfish.messages import OpenSequence, Predrafted, Proposal, Propose, SequenceError, UseVocabulary
from pilotfish.speculation.lookup.index import one_hot_probs
from pilotfish.types import SparseDistribution

_MAX_QUESTIONS = 2
"""The one that waits for its answer, and the one before it, whose drafts made ahead may still come."""


class TranslatedSequence:
    """What is said of it to the drafter, and what the drafter says of it, in the tokens of whoever is to understand
    it."""

    def __init__(
        self, command: OpenSequence, prompt: Sequence[int], vocabularies: Vocabularies, method: Method
    ) -> None:
        """prompt: the drafter's tokens of the command's."""
        self.method = method
        self._vocabularies = vocabularies
        self._command = command
        self._prompt = tuple(prompt)
        self._end_id = _end_id(command, vocabularies)
        self._answer = TargetText(vocabularies.target, vocabularies.target_continuation)
        self._tokens = TextTokens(vocabularies.drafter_continuation)
        self._asked = Propose(command.sequence_id, 0, (), 0)
        """What was asked last."""
        self._bases: deque[tuple[int, int]] = deque(maxlen=_MAX_QUESTIONS)
        """The drafter's length and the target's of the last questions: an answer to one may come after the next."""
        self._replace_from(0, command.output_token_ids)

    def opening(self) -> OpenSequence:
        """Opens it with the drafter."""
        return msgspec.structs.replace(
            self._command,
            prompt_token_ids=self._prompt,
            output_token_ids=tuple(self._tokens.token_ids),
            sampling=text_sampling(self._command.sampling, self._vocabularies),
        )

    @property
    def num_drafter_tokens(self) -> int:
        """Tokens that the drafter has of it."""
        return len(self._prompt) + len(self._tokens.token_ids)

    def is_known(self, command: Propose) -> bool:
        """Whether the tokens before those that it brings are here."""
        start = command.base_length - len(command.new_token_ids) - len(self._command.prompt_token_ids)
        return 0 <= start <= len(self._answer)

    def request(self, command: Propose, max_draft_tokens: int) -> Propose:
        """What the drafter is asked for this; the command `is_known`."""
        start = command.base_length - len(command.new_token_ids)
        num_known = self._replace_from(start - len(self._command.prompt_token_ids), command.new_token_ids)
        self._asked = command
        self._bases.append((self.num_drafter_tokens, command.base_length))
        is_mapped = self._is_mapped
        return msgspec.structs.replace(
            command,
            base_length=self.num_drafter_tokens,
            new_token_ids=tuple(self._tokens.token_ids[num_known:]),
            num_draft_tokens=command.num_draft_tokens if is_mapped else min(self._num_wanted(), max_draft_tokens),
            # Among the tokens of both vocabularies the drafter is surer than it should be.
            tree=command.unpriced_tree if is_mapped else None,
            ahead=command.ahead if is_mapped else None,
        )

    def use(self) -> UseVocabulary:
        """What the last request is drafted among."""
        sequence_id = self._command.sequence_id
        if not self._is_mapped:
            return UseVocabulary(sequence_id)
        shift = self._asked.base_length - self.num_drafter_tokens
        return UseVocabulary(sequence_id, self._vocabularies.name, shared_sampling(self._command.sampling), shift)

    def proposal(self, drafted: Proposal) -> Proposal:
        """The drafter's answer, for the target; one to an earlier question says so, and has no drafts."""
        base_length = self._base_length(drafted.base_length)
        if base_length != self._asked.base_length:
            return Proposal(drafted.sequence_id, base_length, (), timings=drafted.timings)
        if self._is_mapped:
            return self._mapped_proposal(drafted)
        data, is_ended = self._bytes_of(drafted.draft_token_ids)
        token_ids = self._answer.continued_by(data, self._tokens.text)
        if is_ended and self._end_id is not None:
            token_ids.append(self._end_id)
        return self._chosen(token_ids[: self._asked.num_draft_tokens], drafted)

    def predrafted(self, drafted: Predrafted) -> Predrafted | None:
        """What the drafter made ahead, for the target; None: it means nothing to it."""
        names = ("verified_token_ids", "own_token_ids", "draft_token_ids")
        mapped = {name: self._map(getattr(drafted, name)) for name in names}
        probs = self._map_probs(drafted.draft_probs)
        if any(len(token_ids) < len(getattr(drafted, name)) for name, token_ids in mapped.items()):
            return None
        if len(probs) < len(drafted.draft_probs):
            return None
        if not probs:
            probs = one_hot_probs(mapped["draft_token_ids"], self._command.sampling)
        base_length = self._base_length(drafted.base_length)
        return msgspec.structs.replace(drafted, base_length=base_length, draft_probs=probs, **mapped)

    def error(self, error: SequenceError) -> SequenceError:
        """What went wrong with what was asked last."""
        return msgspec.structs.replace(error, base_length=self._asked.base_length)

    @property
    def _is_mapped(self) -> bool:
        """Whether the drafter's tokens stand for the target's one by one."""
        return self.method is Method.INTERSECTION and not self._answer.rest

    def _base_length(self, num_drafter_tokens: int) -> int:
        """The target's length in the question that stood on so many of the drafter's tokens; 0: nobody remembers."""
        return dict(self._bases).get(num_drafter_tokens, 0)

    def _replace_from(self, length: int, token_ids: Sequence[int]) -> int:
        """Change the answer's tokens from `length` on; the drafter's that stay."""
        return self._tokens.replace_from(*self._answer.replace_from(length, token_ids))

    def _num_wanted(self) -> int:
        """The drafter's tokens for as long a text as was asked for, and one that completes it."""
        num_own, num_theirs = self.num_drafter_tokens, self._asked.base_length
        return 1 + math.ceil(self._asked.num_draft_tokens * max(1.0, num_own / num_theirs))

    def _mapped_proposal(self, drafted: Proposal) -> Proposal:
        token_ids, probs = self._map(drafted.draft_token_ids), self._map_probs(drafted.draft_probs)
        num_known = min(len(token_ids), len(probs)) if drafted.draft_probs else len(token_ids)
        if num_known < len(drafted.draft_token_ids) and drafted.parents:
            num_known = 0
        if not drafted.draft_probs:
            return self._chosen(token_ids[:num_known], drafted)
        return msgspec.structs.replace(
            drafted,
            base_length=self._asked.base_length,
            draft_token_ids=token_ids[:num_known],
            draft_probs=probs[:num_known],
        )

    def _chosen(self, token_ids: Sequence[int], drafted: Proposal) -> Proposal:
        """A proposal of tokens that were not drawn."""
        return msgspec.structs.replace(
            drafted,
            base_length=self._asked.base_length,
            draft_token_ids=tuple(token_ids),
            draft_probs=one_hot_probs(tuple(token_ids), self._command.sampling),
            parents=drafted.parents if token_ids else (),
        )

    def _map(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        """The target's tokens, up to one that it does not have."""
        mapped: list[int] = []
        for token_id in token_ids:
            target_id = self._end_id if token_id == self._vocabularies.end_id else None
            target_id = self._vocabularies.target_ids.get(token_id) if target_id is None else target_id
            if target_id is None:
                break
            mapped.append(target_id)
        return tuple(mapped)

    def _map_probs(self, probs: Sequence[SparseDistribution]) -> tuple[SparseDistribution, ...]:
        mapped: list[SparseDistribution] = []
        for each in probs:
            token_ids = self._map(each.token_ids)
            if len(token_ids) < len(each.token_ids):
                break
            mapped.append(msgspec.structs.replace(each, token_ids=token_ids))
        return tuple(mapped)

    def _bytes_of(self, token_ids: Sequence[int]) -> tuple[bytes, bool]:
        """The bytes of drafted tokens up to one that is special, and whether that ends the answer."""
        drafter = self._vocabularies.drafter
        pieces: list[bytes] = []
        for token_id in token_ids:
            if token_id in drafter.special_token_ids:
                return b"".join(pieces), token_id in drafter.eos_token_ids
            pieces.append(drafter.bytes_of(token_id))
        return b"".join(pieces), False


def _end_id(command: OpenSequence, vocabularies: Vocabularies) -> int | None:
    """The token that ends this answer: of several, the one that ended a turn of its prompt, else the first."""
    ends = set(command.sampling.stop_token_ids) & vocabularies.target.eos_token_ids
    seen = (token_id for token_id in reversed(command.prompt_token_ids) if token_id in ends)
    return next(seen, min(ends, default=None))
