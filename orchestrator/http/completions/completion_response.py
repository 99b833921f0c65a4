"""POST /v1/completions: the answer, whole and as events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from orchestrator.answers.output import OutputChunk
from orchestrator.http.completions.answers import Finished, Sample
from orchestrator.http.completions.envelope import Envelope, finish_reason_of, stop_reason_of
from orchestrator.http.completions.logprobs import CompletionLogprobs, CompletionLogprobsWriter
from orchestrator.http.completions.speculation import ChoiceDetails, speculation_report, token_details
from orchestrator.http.completions.usage import Usage, usage_of
from orchestrator.http.exchange import event_of
from orchestrator.request_telemetry.report import Report
from pilotfish.models.tokens.tokenizer import Tokenizer


class CompletionChoice(msgspec.Struct, kw_only=True):
    """One answer, or what it grows by."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | msgspec.UnsetType | None = msgspec.UNSET
    speculation: ChoiceDetails | msgspec.UnsetType = msgspec.UNSET


class Completion(msgspec.Struct, kw_only=True):
    """The body of an answer, and each event of a streamed one."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET


class CompletionFormat:
    """Makes the answers to one request."""

    def __init__(
        self,
        envelope: Envelope,
        tokenizer: Tokenizer,
        *,
        echoed: Sequence[str] = (),
        returns_tokens: bool = False,
        includes_usage: bool = False,
    ) -> None:
        """echoed: what the answers to each prompt begin with; empty for nothing."""
        self.envelope = envelope
        self.tokenizer = tokenizer
        self.returns_tokens = returns_tokens
        self._echoed = echoed
        self._usage: msgspec.UnsetType | None = None if includes_usage else msgspec.UNSET

    def document(self, answers: Sequence[Finished]) -> Completion:
        """All answers as one body."""
        usage = usage_of((answer.sample.prompt_index, answer.report) for answer in answers)
        return self._completion([self._choice(answer) for answer in answers], usage)

    def choice_events(self, sample: Sample) -> CompletionEvents:
        """Makes the events of one answer."""
        return CompletionEvents(self, sample)

    def usage_event(self, usage: Usage) -> bytes:
        """The event that follows the answers."""
        return event_of(self._completion([], usage))

    def event(self, choice: CompletionChoice) -> bytes:
        """One event."""
        return event_of(self._completion([choice], self._usage))

    def echoed(self, sample: Sample) -> str:
        """What the text begins with."""
        return self._echoed[sample.prompt_index] if self._echoed else ""

    def logprobs_writer(self, sample: Sample) -> CompletionLogprobsWriter:
        """Of one answer."""
        skip_special = sample.options.skip_special_tokens
        return CompletionLogprobsWriter(self.tokenizer, len(self.echoed(sample)), skip_special=skip_special)

    def ending(
        self, sample: Sample, chunk: OutputChunk, report: Report, text: str, logprobs: CompletionLogprobs | None
    ) -> CompletionChoice:
        """The choice of the last chunk, with its report."""
        tokens = token_details(chunk, self.tokenizer) if self.returns_tokens else None
        options = sample.options
        return CompletionChoice(
            index=sample.index,
            text=text,
            logprobs=logprobs,
            finish_reason=finish_reason_of(report.finish_reason),
            stop_reason=stop_reason_of(report, options.stop, options.sampling.stop_token_ids),
            speculation=ChoiceDetails(tokens, speculation_report(report)),
        )

    def _choice(self, answer: Finished) -> CompletionChoice:
        text = self.echoed(answer.sample) + answer.chunk.text
        logprobs = self.logprobs_writer(answer.sample).add(answer.chunk)
        return self.ending(answer.sample, answer.chunk, answer.report, text, logprobs)

    def _completion(self, choices: list[CompletionChoice], usage: Usage | msgspec.UnsetType | None) -> Completion:
        return Completion(
            **self.envelope,
            choices=choices,
            usage=usage,
        )


class CompletionEvents:
    """The events of one answer."""

    def __init__(self, completion: CompletionFormat, sample: Sample) -> None:
        self._completion = completion
        self._sample = sample
        self._echo = completion.echoed(sample)
        self._logprobs = completion.logprobs_writer(sample)

    def chunk(self, chunk: OutputChunk) -> bytes:
        """Empty while nothing can be shown."""
        completion, text = self._completion, self._take_echo() + chunk.text
        logprobs = self._logprobs.add(chunk)
        if not text and logprobs is None and not completion.returns_tokens:
            return b""
        tokenizer = completion.tokenizer
        choice = CompletionChoice(
            index=self._sample.index,
            text=text,
            logprobs=logprobs,
            speculation=ChoiceDetails(token_details(chunk, tokenizer)) if completion.returns_tokens else msgspec.UNSET,
        )
        return completion.event(choice)

    def end(self, chunk: OutputChunk, report: Report) -> bytes:
        """The rest of the text, and how it ended."""
        text = self._take_echo() + chunk.text
        logprobs = self._logprobs.add(chunk)
        return self._completion.event(self._completion.ending(self._sample, chunk, report, text, logprobs))

    def _take_echo(self) -> str:
        echo, self._echo = self._echo, ""
        return echo
