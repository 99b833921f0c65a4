"""One answer in the making: its committed tokens, its statistics, and whether it has ended."""

from __future__ import annotations

import copy

from orchestrator.answers.output import AnswerText, OutputChunk
from orchestrator.requests.request import GenerationRequest
from pilotfish.errors import InternalError
from pilotfish.messages import OpenSequence, Verdict
from pilotfish.speculation.statistics import AcceptanceStatistics
from pilotfish.types import FinishReason, Limits, ModelInfo, TokenOrigin


class Sequence:
    """Prompt plus committed output. Only `commit` changes it."""

    def __init__(self, request: GenerationRequest, output: AnswerText) -> None:
        self.request = request
        self.finish_reason: FinishReason | None = None
        self.stopped_by: str | int | None = None
        """The stop string or the token id that ended the answer."""
        self.statistics = AcceptanceStatistics()
        self.num_plain_tokens = 0
        self.num_grammar_draft_tokens = 0
        """Draft tokens that only the grammar drafted."""
        self.num_grammar_accepted_tokens = 0
        self.num_step_tokens = 0
        """Tokens of steps that a drafter wrote and the target took as they were."""
        self._output = output
        self._token_ids = list(request.prompt_token_ids)

    @property
    def length(self) -> int:
        """Committed tokens, prompt and output."""
        return len(self._token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self._token_ids) - len(self.request.prompt_token_ids)

    @property
    def num_remaining_tokens(self) -> int:
        """Output tokens still allowed."""
        return self.request.sampling.max_tokens - self.num_output_tokens

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    def tokens_since(self, position: int) -> tuple[int, ...]:
        """Committed tokens from absolute `position` on."""
        return tuple(self._token_ids[position:])

    @property
    def output_token_ids(self) -> tuple[int, ...]:
        return self.tokens_since(len(self.request.prompt_token_ids))

    def with_tokens(self, token_ids: tuple[int, ...]) -> Sequence:
        """A copy to which these are committed as well, to ask what would follow. Nothing is ever committed to it."""
        longer = copy.copy(self)
        longer._token_ids = [*self._token_ids, *token_ids]
        return longer

    def opening(self, sequence_id: int) -> OpenSequence:
        """The message that opens the sequence on a replica that continues it from here."""
        return OpenSequence(
            sequence_id=sequence_id,
            prompt_token_ids=self.request.prompt_token_ids,
            output_token_ids=self.output_token_ids,
            sampling=self.request.sampling,
            traceparent=self.request.traceparent,
            cache_salt=self.request.cache_salt,
            client=self.request.client,
            learn_as=self.request.request_id if self.request.learns else "",
        )

    def commit(self, verdict: Verdict, *, is_step: bool = False) -> OutputChunk:
        """Append a verdict's tokens, cut at a stop string inside them. is_step: they are a whole step, not a round's.

        Returns what the client gets. Raises InternalError for a verdict that does not continue
        the committed tokens.
        """
        if self.is_finished or verdict.base_length != self.length:
            raise InternalError(f"the verdict stands on {verdict.base_length} tokens; {self.length} are committed")
        chunk = self._output.push(verdict)
        self._token_ids.extend(chunk.token_ids)
        if is_step:
            self.num_step_tokens += len(chunk.token_ids)
        elif verdict.num_draft_tokens:
            self.statistics.add(verdict.num_draft_tokens, chunk.num_accepted_tokens, verdict.depth)
            self.num_grammar_draft_tokens += verdict.num_grammar_tokens
            self.num_grammar_accepted_tokens += chunk.origins.count(TokenOrigin.GRAMMAR)
        else:
            self.num_plain_tokens += len(chunk.token_ids)
        self.finish_reason = chunk.finish_reason
        self.stopped_by = chunk.stopped_by
        return chunk


def check_verdict(verdict: Verdict, sequence: Sequence, model: ModelInfo, limits: Limits) -> None:
    """Raises InternalError for what does not continue the committed tokens, or cannot be of this model and draft.

    model, limits: those of the replica that answers.
    """
    token_ids, num_drafts, num_accepted = verdict.token_ids, verdict.num_draft_tokens, verdict.num_accepted_tokens
    if verdict.base_length != sequence.length or not token_ids:
        raise InternalError(f"the target answered on {verdict.base_length} tokens; {sequence.length} are committed")
    if max(token_ids) >= model.vocab_size:
        raise InternalError(f"the target answered with token {max(token_ids)}; its vocabulary has {model.vocab_size}")
    num_remaining = sequence.num_remaining_tokens
    if len(token_ids) > num_remaining or (len(token_ids) == num_remaining and verdict.finish_reason is None):
        raise InternalError("the target went past max_tokens")
    # The tokens of a round are those accepted, and at most one of the target's own.
    is_round = num_accepted <= verdict.depth <= num_drafts <= limits.max_draft_tokens
    is_round &= verdict.first_grammar_token + verdict.num_grammar_tokens <= num_drafts
    if not is_round or (num_drafts and not num_accepted <= len(token_ids) <= num_accepted + 1):
        raise InternalError(
            f"the target says that {num_accepted} of {num_drafts} drafts are accepted, and sends {len(token_ids)} "
            "tokens"
        )
    if verdict.logprobs:
        _check_logprobs(verdict, model)


def _check_logprobs(verdict: Verdict, model: ModelInfo) -> None:
    is_sound = len(verdict.logprobs) == len(verdict.token_ids) and all(
        len(logprobs.top_token_ids) == len(logprobs.top_logprobs)
        and max(logprobs.top_token_ids, default=0) < model.vocab_size
        for logprobs in verdict.logprobs
    )
    if not is_sound:
        raise InternalError("the target's log-probabilities are not those of its tokens")
