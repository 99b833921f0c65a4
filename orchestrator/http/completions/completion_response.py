"""POST /v1/completions: the answer, whole and as events."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from orchestrator.answers.output import OutputChunk
from orchestrator.http.completions.answers import ChoiceEvents, Finished, Sample
from orchestrator.http.completions.common_format import CommonFormat
from orchestrator.http.completions.envelope import Envelope, finish_reason_of, stop_reason_of
from orchestrator.http.completions.logprobs import CompletionLogprobs, CompletionLogprobsWriter, PromptLogprobs
from orchestrator.http.completions.speculation import ChoiceDetails, speculation_report
from orchestrator.http.completions.usage import RunningUsage, Usage, usage_of
from orchestrator.http.exchange import event_of
from pilotfish.rpc.answer import Summary


class CompletionChoice(msgspec.Struct, kw_only=True):
    """One answer, or what it grows by."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | msgspec.UnsetType | None = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    """Present with `return_token_ids`; in a stream, in an answer's first event."""
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType | None = msgspec.UNSET
    speculation: ChoiceDetails | msgspec.UnsetType = msgspec.UNSET


class Completion(Envelope, kw_only=True):
    """The body of an answer, and each event of a streamed one."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET


@dataclass(kw_only=True)
class CompletionFormat(CommonFormat):
    """Makes the answers to one request."""

    echoed: Sequence[str] = ()
    """What the answers to each prompt begin with; empty for nothing."""
    num_best: int | None = None
    """Answers to each prompt that are returned; None: all."""
    has_logprobs: bool = True
    """False where only that choice needs log-probabilities."""

    def document(self, answers: Sequence[Finished]) -> Completion:
        usage = usage_of((answer.sample.prompt_index, answer.report) for answer in answers)
        kept = answers if self.num_best is None else self._best(answers, self.num_best)
        return self._completion([self._choice(answer) for answer in kept], usage)

    def _best(self, answers: Sequence[Finished], num_best: int) -> list[Finished]:
        """Each prompt's likeliest answers by the mean over their tokens, in the prompts' order."""
        best: list[Finished] = []
        for _, group in itertools.groupby(answers, key=lambda answer: answer.sample.prompt_index):
            for answer in sorted(group, key=_mean_logprob, reverse=True)[:num_best]:
                logprobs = answer.chunk.logprobs if self.has_logprobs else ()
                chunk = msgspec.structs.replace(answer.chunk, logprobs=logprobs)
                best.append(Finished(dataclasses.replace(answer.sample, index=len(best)), chunk, answer.report))
        return best

    def choice_events(self, sample: Sample) -> CompletionEvents:
        return CompletionEvents(self, sample)

    def usage_event(self, usage: Usage) -> bytes:
        """The event that follows the answers."""
        return event_of(self._completion([], usage))

    def event(self, choice: CompletionChoice, usage: Usage | None) -> bytes:
        return event_of(self._completion([choice], usage or self.no_usage))

    def echo(self, sample: Sample) -> str:
        """What the text begins with."""
        return self.echoed[sample.prompt_index] if self.echoed else ""

    def logprobs_writer(self, sample: Sample) -> CompletionLogprobsWriter:
        """A writer of one answer's log-probabilities."""
        return CompletionLogprobsWriter(
            self.tokenizer,
            self.echo(sample),
            sample.prompt_token_ids,
            num_logprobs=sample.options.sampling.num_logprobs if self.has_logprobs else None,
            skip_special=sample.options.skip_special_tokens,
        )

    def ending(
        self, sample: Sample, chunk: OutputChunk, report: Summary, text: str, logprobs: CompletionLogprobs | None
    ) -> CompletionChoice:
        """The choice of the last chunk, with its report."""
        return CompletionChoice(
            index=sample.index,
            text=text,
            logprobs=logprobs,
            finish_reason=finish_reason_of(report.finish_reason),
            stop_reason=stop_reason_of(report, sample.options),
            token_ids=self.token_ids(chunk),
            speculation=ChoiceDetails(self.token_details(chunk), speculation_report(report)),
        )

    def _choice(self, answer: Finished) -> CompletionChoice:
        text = self.echo(answer.sample) + answer.chunk.text
        logprobs = self.logprobs_writer(answer.sample).add(answer.chunk)
        choice = self.ending(answer.sample, answer.chunk, answer.report, text, logprobs)
        choice.prompt_token_ids = self.prompt_token_ids(answer.sample)
        choice.prompt_logprobs = self.prompt_logprobs(answer)
        return choice

    def _completion(self, choices: list[CompletionChoice], usage: Usage | msgspec.UnsetType | None) -> Completion:
        return Completion(**msgspec.structs.asdict(self.envelope), choices=choices, usage=usage)


def _mean_logprob(answer: Finished) -> float:
    logprobs = [token.logprob for token in answer.chunk.logprobs]
    return sum(logprobs) / max(1, len(logprobs))


class CompletionEvents(ChoiceEvents):
    def __init__(self, completion: CompletionFormat, sample: Sample) -> None:
        self._completion = completion
        self._sample = sample
        self._echo = completion.echo(sample)
        self._prompt_token_ids = completion.prompt_token_ids(sample)
        self._logprobs = completion.logprobs_writer(sample)
        self._usage = RunningUsage(len(sample.prompt_token_ids), is_shown=completion.has_running_usage)

    def chunk(self, chunk: OutputChunk) -> bytes:
        """Empty while nothing can be shown."""
        self._usage.num_output_tokens += len(chunk.token_ids)
        completion, text = self._completion, self._take_echo() + chunk.text
        logprobs = self._logprobs.add(chunk)
        if not text and logprobs is None and not completion.returns_tokens and not completion.returns_token_ids:
            return b""
        choice = CompletionChoice(
            index=self._sample.index,
            text=text,
            logprobs=logprobs,
            token_ids=completion.token_ids(chunk),
            speculation=completion.running_details(chunk),
        )
        return self._event(choice)

    def end(self, chunk: OutputChunk, report: Summary) -> bytes:
        """The rest of the text, and how it ended."""
        self._usage.num_output_tokens += len(chunk.token_ids)
        text = self._take_echo() + chunk.text
        logprobs = self._logprobs.add(chunk)
        return self._event(self._completion.ending(self._sample, chunk, report, text, logprobs))

    def _event(self, choice: CompletionChoice) -> bytes:
        choice.prompt_token_ids = self._prompt_token_ids
        self._prompt_token_ids = msgspec.UNSET
        return self._completion.event(choice, self._usage.now())

    def _take_echo(self) -> str:
        echo, self._echo = self._echo, ""
        return echo
