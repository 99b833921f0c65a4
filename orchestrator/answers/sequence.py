"""One answer in the making: its committed tokens, its statistics, and whether it has ended."""

from __future__ import annotations

from orchestrator.answers.output import OutputChunk, OutputText
from orchestrator.requests.request import GenerationRequest
from pilotfish.errors import InternalError
from pilotfish.messages import OpenSequence, Verdict
from pilotfish.speculation.statistics import AcceptanceStatistics
from pilotfish.types import FinishReason


class Sequence:
    """Prompt plus committed output. Only `commit` changes it."""

    def __init__(self, request: GenerationRequest, output: OutputText) -> None:
        self.request = request
        self.finish_reason: FinishReason | None = None
        self.stopped_by = ""
        """The stop string or the decimal token id that ended the answer."""
        self.statistics = AcceptanceStatistics()
        self.num_plain_tokens = 0
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

    def opening(self, sequence_id: int) -> OpenSequence:
        """What a replica that is to go on from here has to be told first."""
        return OpenSequence(
            sequence_id=sequence_id,
            prompt_token_ids=self.request.prompt_token_ids,
            output_token_ids=self.output_token_ids,
            sampling=self.request.sampling,
            traceparent=self.request.traceparent,
            cache_salt=self.request.cache_salt,
        )

    def commit(self, verdict: Verdict) -> OutputChunk:
        """Append a verdict's tokens, cut at a stop string inside them.

        Returns what the client gets. Raises InternalError for a verdict that does not continue
        the committed tokens.
        """
        if self.is_finished or verdict.base_length != self.length:
            raise InternalError(f"the verdict stands on {verdict.base_length} tokens; {self.length} are committed")
        chunk = self._output.push(verdict)
        self._token_ids.extend(chunk.token_ids)
        if verdict.num_draft_tokens:
            self.statistics.add(verdict.num_draft_tokens, chunk.num_accepted_tokens, verdict.depth)
        else:
            self.num_plain_tokens += len(chunk.token_ids)
        self.finish_reason = chunk.finish_reason
        self.stopped_by = chunk.stopped_by
        return chunk
