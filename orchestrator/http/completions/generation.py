"""POST /v1/chat/completions, POST /v1/completions and POST /v1/responses."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from orchestrator.http.completions.answers import AnswerServer, ChoiceEvents, Finished, Sample
from orchestrator.http.completions.chat_format import ChatFormat
from orchestrator.http.completions.chat_request import ChatCompletionRequest
from orchestrator.http.completions.completion_request import CompletionRequest
from orchestrator.http.completions.completion_response import CompletionFormat
from orchestrator.http.completions.envelope import new_envelope
from orchestrator.http.completions.prompt_reader import PromptReader
from orchestrator.http.completions.request_fields import LOSSY_HEADER, FieldsT, RequestReader
from orchestrator.http.completions.response_format import grammar_field, wanted_grammar
from orchestrator.http.completions.sampling import (
    SPECULATION_NAMES,
    GenerationFields,
    check_num_choices,
    generation_options,
)
from orchestrator.http.completions.served_model import served_model
from orchestrator.http.completions.usage import Usage, usage_of
from orchestrator.http.errors import renamed
from orchestrator.http.exchange import Exchange
from orchestrator.http.responses.format import ResponsesFormat
from orchestrator.http.responses.request import ResponsesRequest
from orchestrator.inference import InferenceService
from orchestrator.requests.harmony import START, HarmonyIds, HarmonyParser
from orchestrator.requests.reasoning import (
    HARMONY,
    MAX_MARK_TOKENS,
    MakeParser,
    ReasoningMarks,
    ReasoningParser,
    reasoning_marks,
)
from orchestrator.requests.request import lossy_by_of
from orchestrator.requests.tools.tool_forms import tool_form
from orchestrator.requests.tools.tool_forms.gpt_oss import GPT_OSS
from orchestrator.requests.tools.tool_use import ToolUse
from pilotfish.config import OrchestratorConfig
from pilotfish.errors import InvalidRequestError, ResourceExhaustedError, UnavailableError
from pilotfish.types import Grammar, ModelInfo

_CHAT_NAMES = {**SPECULATION_NAMES, "prompt": "messages"}
"""Names of parameters that the service calls otherwise."""


class AnswerFormat(Protocol):
    """The answers to one request in one API's shape."""

    def document(self, answers: Sequence[Finished]) -> Any: ...

    def choice_events(self, sample: Sample) -> ChoiceEvents: ...

    def usage_event(self, usage: Usage) -> bytes: ...


class GenerationApi:
    """The endpoints that generate."""

    def __init__(self, service: InferenceService, config: OrchestratorConfig) -> None:
        self._service = service
        self._config = config
        tokenizer = service.tokenizer
        self._marks = reasoning_marks(config.http.reasoning_parser, tokenizer.chat_template)
        self._tool_form = tool_form(config.http.tool_call_parser, tokenizer)
        mark_ids = tokenizer.encode("".join(self._marks or ()), add_special_tokens=False)
        self._has_special_marks = not tokenizer.special_token_ids.isdisjoint(mark_ids)
        end_ids = tokenizer.encode(self._marks.end, add_special_tokens=False) if self._marks else ()
        self._end_mark_id = end_ids[0] if len(end_ids) == 1 else None
        self._harmony_ids = HarmonyIds.of(tokenizer) if self._marks is HARMONY else None
        self._answers = AnswerServer(service, interval_tokens=config.stream_interval_tokens)
        self._prompts = PromptReader(service, config)
        self._chat_reader = RequestReader(ChatCompletionRequest, is_strict=config.http.strict_fields)
        self._completion_reader = RequestReader(CompletionRequest, is_strict=config.http.strict_fields)
        self._responses_reader = RequestReader(ResponsesRequest, is_strict=config.http.strict_fields)

    async def chat(self, exchange: Exchange) -> None:
        """POST /v1/chat/completions."""
        fields = await self._read(self._chat_reader, exchange)
        exchange.param_names = _CHAT_NAMES

        def make_format(model: ModelInfo, tools: ToolUse, reasoning: MakeParser) -> ChatFormat:
            return ChatFormat(
                new_envelope("chatcmpl-", model),
                self._service.tokenizer,
                tools=tools,
                reasoning=reasoning,
                includes_reasoning=fields.include_reasoning is not False,
                echoed=fields.echoed,
                **fields.extras,
            )

        await self._chat(exchange, fields, make_format)

    async def respond(self, exchange: Exchange) -> None:
        """POST /v1/responses."""
        request = await self._read(self._responses_reader, exchange)

        def make_format(model: ModelInfo, tools: ToolUse, reasoning: MakeParser) -> ResponsesFormat:
            return ResponsesFormat(new_envelope("resp_", model), request, tools, reasoning, self._service.tokenizer)

        self._responses_reader.ignore(exchange, request.unserved_fields)
        exchange.param_names = request.param_names
        await self._chat(exchange, request.as_chat(), make_format)

    async def _read(self, reader: RequestReader[FieldsT], exchange: Exchange) -> FieldsT:
        return await reader.read(exchange, self._service.run_for(exchange.caller.client_id))

    async def _chat(
        self,
        exchange: Exchange,
        fields: ChatCompletionRequest,
        make_format: Callable[[ModelInfo, ToolUse, MakeParser], AnswerFormat],
    ) -> None:
        param_names = exchange.param_names
        model = await served_model(self._service, fields.model)
        unread = fields.unread_fields(self._service.tokenizer)
        self._chat_reader.ignore(exchange, {renamed(name, param_names): note for name, note in unread.items()})
        form = self._tool_form
        # Harmony's answer header, which the parser takes off; dropped where the prompt has it.
        if self._marks is not HARMONY or fields.continue_final_message:
            form = dataclasses.replace(form, answer_begin="")
        tools = dataclasses.replace(fields.tool_use(), form=form)
        field = grammar_field(fields.outputs)
        exchange.param_names = {**param_names, "grammar": renamed(field, param_names)}
        wanted = wanted_grammar(fields.given_format, fields.outputs)
        grammar = _chat_grammar(wanted, tools)
        options = generation_options(
            fields,
            max_tokens=fields.max_output_tokens(model.max_context_tokens),
            num_logprobs=fields.num_logprobs,
            grammar=tools.framed(grammar) if grammar is not None and grammar is wanted else grammar,
            defaults=self._service.defaults,
            tokenizer=self._service.tokenizer,
        )
        splits_thoughts = fields.separate_reasoning is not False
        # A format binds the answer from its first token: there are no thoughts before it.
        marks = self._marks if self._marks is HARMONY or (splits_thoughts and grammar is None) else None
        has_special_calls = bool(tools.form.special_token_ids) and tools.choice != "none"
        if (marks is not None and self._has_special_marks) or has_special_calls:
            options = dataclasses.replace(options, skip_special_tokens=False)
        prompt = fields.prompt(tools)
        samples = await self._prompts.samples(
            fields, [prompt], options, exchange.caller, model.max_context_tokens, is_tokenized=marks is not None
        )
        make_parser = self._reasoning(marks, samples[0], prompt.open_content, tools, splits_thoughts=splits_thoughts)
        answer_format = make_format(model, tools, make_parser)
        try:
            await self._answer(exchange, fields, samples, answer_format)
        except InvalidRequestError as error:
            if error.param == "grammar" and grammar is not wanted:
                if wanted is not None and tools.choice == "auto":
                    # Of two in one: where this one is sound, it is the tools'.
                    # If that cannot be found out, the first verdict is all there is to report.
                    with contextlib.suppress(UnavailableError, ResourceExhaustedError):
                        await self._service.grammar_check.check(wanted, exchange.caller.client_id)
                exchange.param_names = {**param_names, "grammar": "tools"}
            raise

    def _reasoning(
        self, marks: ReasoningMarks | None, sample: Sample, said: str, tools: ToolUse, *, splits_thoughts: bool
    ) -> MakeParser:
        """Makes the parser of each answer; the sample's prompt is tokenised where there are marks.

        said: what the answer goes on with, at the prompt's end.
        """
        if marks is None:
            return lambda: None
        num_tokens = MAX_MARK_TOKENS + len(said.encode())
        end = self._service.tokenizer.decode(sample.prompt_token_ids[-num_tokens:], skip_special=False).rstrip()
        if marks is HARMONY:
            turn = end[end.rfind(START) :] if START in end else ""
            finds_calls = tools.choice != "none" and tools.form.begin == GPT_OSS.begin
            return lambda: HarmonyParser(
                turn, self._harmony_ids, splits_thoughts=splits_thoughts, finds_calls=finds_calls
            )
        is_begun = end.removesuffix(said).rstrip().endswith(marks.begin)
        turn = (marks.begin if is_begun else "") + said
        is_inside = turn.rfind(marks.begin) > turn.rfind(marks.end)
        return lambda: ReasoningParser(marks, is_inside=is_inside, end_id=self._end_mark_id)

    async def complete(self, exchange: Exchange) -> None:
        """POST /v1/completions."""
        fields = await self._read(self._completion_reader, exchange)
        exchange.param_names = {**SPECULATION_NAMES, "grammar": grammar_field(fields.outputs)}
        model = await served_model(self._service, fields.model)
        check_num_choices(fields.n, 1, self._config.http.max_choices)
        fields.check_supported()
        options = generation_options(
            fields,
            max_tokens=fields.max_output_tokens(),
            num_logprobs=fields.num_logprobs,
            grammar=wanted_grammar(fields.given_format, fields.outputs),
            defaults=self._service.defaults,
            tokenizer=self._service.tokenizer,
        )
        prompts = fields.prompts()
        samples = await self._prompts.samples(fields, prompts, options, exchange.caller, model.max_context_tokens)
        samples = [dataclasses.replace(sample, is_prompt_only=fields.is_prompt_only) for sample in samples]
        cut = samples if fields.truncate_prompt_tokens else ()
        echoed = (
            await self._prompts.echoed(prompts, cut, exchange.caller, model.max_context_tokens) if fields.echo else []
        )
        answer_format = CompletionFormat(
            new_envelope("cmpl-", model),
            self._service.tokenizer,
            echoed=echoed,
            num_best=fields.num_kept if fields.is_choosing else None,
            has_logprobs=fields.logprobs is not None,
            **fields.extras,
        )
        await self._answer(exchange, fields, samples, answer_format)

    async def _answer(
        self,
        exchange: Exchange,
        fields: GenerationFields,
        samples: Sequence[Sample],
        answer_format: AnswerFormat,
    ) -> None:
        lossy_by = lossy_by_of(samples[0].options)
        if lossy_by and self._config.speculation.allow_lossy:
            exchange.extra_headers[LOSSY_HEADER] = lossy_by
        if not fields.stream:
            await exchange.reply_bytes(
                await self._answers.document(samples, answer_format, exchange.caller), "application/json"
            )
            return
        choices = [answer_format.choice_events(sample) for sample in samples]
        exchange.failure_event = choices[0].failed
        reports = await self._answers.stream(samples, choices, exchange)
        if fields.includes_usage:
            prompt_indexes = (sample.prompt_index for sample in samples)
            await exchange.write_event(answer_format.usage_event(usage_of(zip(prompt_indexes, reports, strict=True))))
        await exchange.end_events()


def _chat_grammar(wanted: Grammar | None, tools: ToolUse) -> Grammar | None:
    """What the answer must be, a call included. Raises InvalidRequestError."""
    if wanted is None or tools.choice == "none":
        return wanted or tools.grammar
    return tools.grammar_beside(wanted) if tools.choice == "auto" else tools.grammar
