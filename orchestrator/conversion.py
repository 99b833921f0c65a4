"""The public API's messages from and to plain values. Only the servicer uses this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from google.protobuf.message import Message

from orchestrator.answers.output import OutputChunk
from orchestrator.request_telemetry.trace import Report
from orchestrator.requests.bad_words import bad_word_tokens
from orchestrator.requests.prompt import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from orchestrator.requests.request import STEP_FIELDS, GenerationOptions, Mode, SpeculationOptions, draw_seed
from pilotfish.chat import ChatMessage
from pilotfish.config import SpeculationConfig
from pilotfish.errors import InvalidRequestError
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.conversion import enum_from_proto, grammar_from_proto, logprobs_to_proto
from pilotfish.rpc.v1 import inference_pb2, types_pb2
from pilotfish.types import MAX_SEED, AcceptanceMode, SamplingParams

_MODES: dict[int, Mode] = {
    inference_pb2.SPECULATION_MODE_AUTO: "auto",
    inference_pb2.SPECULATION_MODE_OFF: "off",
    inference_pb2.SPECULATION_MODE_ON: "on",
}


_SAMPLING_FIELDS = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
_LOSSY_FIELDS = ("typical_epsilon", "typical_delta", "tolerance_top_k", "tolerance_delta")


def _given(message: Message, names: Sequence[str]) -> dict[str, Any]:
    """The values of those fields that are set."""
    return {name: getattr(message, name) for name in names if message.HasField(name)}


def prompt_from_proto(
    request: inference_pb2.GenerateRequest | inference_pb2.TokenizeRequest, kind: str | None
) -> Prompt:
    """The prompt in the field that is set. Raises InvalidRequestError if none is."""
    match kind:
        case "text":
            return TextPrompt(request.text)
        case "tokens":
            return TokenPrompt(request.tokens.token_ids)
        case "chat":
            messages = request.chat.messages
            return ChatPrompt(tuple(ChatMessage(role=message.role, content=message.content) for message in messages))
        case _:
            raise InvalidRequestError("the request has no prompt; set text, tokens or chat")


def options_from_proto(
    request: inference_pb2.GenerateRequest, defaults: SpeculationConfig, tokenizer: Tokenizer
) -> GenerationOptions:
    """Everything but the prompt. Raises InvalidRequestError for values out of range."""
    return GenerationOptions(
        sampling=SamplingParams(
            **_given(request, _SAMPLING_FIELDS),
            logit_bias=tuple((item.token_id, item.bias) for item in request.logit_bias),
            # Negative ones are seeds of their own, as over HTTP.
            seed=request.seed % (MAX_SEED + 1) if request.HasField("seed") else draw_seed(),
            acceptance=_acceptance(request.speculation.acceptance),
            **_given(request.speculation, _LOSSY_FIELDS),
            stop_token_ids=tuple(request.stop_token_ids),
            allowed_token_ids=tuple(request.allowed_token_ids),
            min_tokens=request.min_tokens,
            bad_words=bad_word_tokens(request.bad_words, tokenizer),
            num_logprobs=request.logprobs if request.HasField("logprobs") else None,
            grammar=grammar_from_proto(request.grammar) if request.HasField("grammar") else None,
        ),
        speculation=_speculation(request.speculation, defaults),
        stop=tuple(request.stop),
        ignore_eos=request.ignore_eos,
        include_stop=request.include_stop,
        skip_special_tokens=not request.show_special_tokens,
        cache_salt=request.cache_salt,
    )


def _acceptance(value: int) -> AcceptanceMode:
    return enum_from_proto(AcceptanceMode, value) if value else AcceptanceMode.COUPLED


def _speculation(options: inference_pb2.SpeculationOptions, defaults: SpeculationConfig) -> SpeculationOptions:
    mode = defaults.mode
    if options.mode != inference_pb2.SPECULATION_MODE_UNSPECIFIED:
        if options.mode not in _MODES:
            raise InvalidRequestError(f"speculation mode {options.mode} is unknown")
        mode = _MODES[options.mode]
    return SpeculationOptions(
        mode=mode,
        num_speculative_tokens=options.num_speculative_tokens if options.HasField("num_speculative_tokens") else None,
        proposer=options.proposer or defaults.proposer,
        **_given(options, STEP_FIELDS),
    )


def chunk_to_proto(chunk: OutputChunk) -> inference_pb2.GenerateResponse:
    response = inference_pb2.GenerateResponse()
    proto = response.chunk
    proto.text = chunk.text
    proto.token_ids.extend(chunk.token_ids)
    proto.origins.extend(cast("tuple[types_pb2.TokenOrigin.ValueType, ...]", chunk.origins))  # the values are equal
    if chunk.logprobs:
        proto.logprobs.extend(map(logprobs_to_proto, chunk.logprobs))
    return response


def report_to_proto(report: Report) -> inference_pb2.GenerateResponse:
    return inference_pb2.GenerateResponse(
        summary=inference_pb2.Summary(
            request_id=report.request_id,
            finish_reason=types_pb2.FinishReason.ValueType(report.finish_reason),
            stopped_by="" if report.stopped_by is None else str(report.stopped_by),
            usage=inference_pb2.Usage(
                prompt_tokens=report.num_prompt_tokens,
                output_tokens=report.num_output_tokens,
                cached_prompt_tokens=report.num_cached_tokens,
            ),
            timings=inference_pb2.RequestTimings(
                queue_time_ns=report.queue_time_ns,
                time_to_first_token_ns=report.time_to_first_token_ns,
                total_time_ns=report.total_time_ns,
            ),
            speculation=inference_pb2.SpeculationStats(**msgspec.structs.asdict(report.speculation)),
            seed=report.seed,
            model_id=report.model_id,
            emulated=report.emulated,
            lossy=report.lossy,
        )
    )
