"""A blocking client of the public API, for the command line."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

import grpc

from pilotfish.client.answer import Chunk, GenerateOptions, Prompt, ServiceInfo, Summary, TokenPrompt
from pilotfish.errors import UnavailableError
from pilotfish.rpc.channel import CHANNEL_OPTIONS
from pilotfish.rpc.conversion import logprobs_from_proto
from pilotfish.rpc.status import error_from_rpc
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc
from pilotfish.rpc.v1 import types_pb2
from pilotfish.types import AcceptanceMode, FinishReason, TokenOrigin

CONNECT_TIMEOUT_S = 3.0
INFO_TIMEOUT_S = 5.0
TOKENIZE_TIMEOUT_S = 5.0

_MODES = {"auto": pb.SPECULATION_MODE_AUTO, "on": pb.SPECULATION_MODE_ON, "off": pb.SPECULATION_MODE_OFF}
_ACCEPTANCES = {
    AcceptanceMode.COUPLED: types_pb2.ACCEPTANCE_MODE_COUPLED,
    AcceptanceMode.REJECTION: types_pb2.ACCEPTANCE_MODE_REJECTION,
}


class InferenceClient:
    """One channel to an orchestrator. Errors of the server come as PilotfishError."""

    def __init__(self, address: str, *, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        self._address = address
        self._connect_timeout_s = connect_timeout_s
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self._stub = pb_grpc.InferenceStub(self._channel)

    def __enter__(self) -> Self:
        """Connect. Raises UnavailableError, saying what to do, when nobody listens."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout=self._connect_timeout_s)
        except grpc.FutureTimeoutError:
            self._channel.close()
            raise UnavailableError(
                f"nothing answers at {self._address}: start it with `pilotfish up`, or name another with --address"
            ) from None
        except BaseException:
            self._channel.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._channel.close()

    def info(self) -> ServiceInfo:
        """The model and the pools behind the address."""
        try:
            response = self._stub.GetModelInfo(pb.GetModelInfoRequest(), timeout=INFO_TIMEOUT_S)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        return ServiceInfo(
            model_id=response.model.model_id,
            dtype=response.model.dtype,
            deterministic=response.model.deterministic,
            max_context_tokens=response.model.max_context_tokens,
            num_target_replicas=response.num_target_replicas,
            num_draft_replicas=response.num_draft_replicas,
            max_draft_tokens=response.limits.max_draft_tokens,
            proposers=tuple(response.proposers),
            self_drafter=response.model.proposer,
            version=response.version,
            emulated=response.model.emulated,
        )

    def generate(self, prompt: Prompt, options: GenerateOptions, *, timeout_s: float) -> Iterator[Chunk | Summary]:
        """Stream an answer: chunks, then one summary. Closing the iterator cancels the call."""
        call = self._stub.Generate(_request(prompt, options), timeout=timeout_s)
        try:
            for response in call:
                if response.HasField("summary"):
                    yield _summary(response.summary)
                else:
                    yield _chunk(response.chunk)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        finally:
            call.cancel()  # type: ignore[no-untyped-call]

    def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        """The tokens of a prompt, those of the chat template included."""
        request = pb.TokenizeRequest()
        _set_prompt(request, prompt)
        return tuple(self._tokenize(request).token_ids)

    def detokenize(self, token_ids: tuple[int, ...]) -> str:
        """The text of token ids."""
        return self._tokenize(pb.TokenizeRequest(tokens=pb.TokenPrompt(token_ids=token_ids))).text

    def _tokenize(self, request: pb.TokenizeRequest) -> pb.TokenizeResponse:
        try:
            return self._stub.Tokenize(request, timeout=TOKENIZE_TIMEOUT_S)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None


def _request(prompt: Prompt, options: GenerateOptions) -> pb.GenerateRequest:
    request = pb.GenerateRequest(
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        seed=options.seed,
        stop=options.stop,
        ignore_eos=options.ignore_eos,
        logprobs=options.logprobs,
        speculation=pb.SpeculationOptions(
            mode=_MODES[options.speculation],
            num_speculative_tokens=options.num_speculative_tokens,
            proposer=options.proposer,
            acceptance=_ACCEPTANCES[options.acceptance],
        ),
    )
    _set_prompt(request, prompt)
    return request


def _set_prompt(request: pb.GenerateRequest | pb.TokenizeRequest, prompt: Prompt) -> None:
    if isinstance(prompt, str):
        request.text = prompt
    elif isinstance(prompt, TokenPrompt):
        request.tokens.token_ids.extend(prompt.token_ids)
    else:
        messages = (pb.ChatMessage(role=message.role, content=message.content) for message in prompt)
        request.chat.messages.extend(messages)


def _chunk(chunk: pb.Chunk) -> Chunk:
    return Chunk(
        chunk.text,
        tuple(chunk.token_ids),
        tuple(TokenOrigin(origin) for origin in chunk.origins),
        tuple(logprobs_from_proto(logprobs) for logprobs in chunk.logprobs),
    )


def _summary(summary: pb.Summary) -> Summary:
    statistics = summary.speculation
    return Summary(
        request_id=summary.request_id,
        model_id=summary.model_id,
        finish_reason=FinishReason(summary.finish_reason),
        stopped_by=summary.stopped_by,
        seed=summary.seed,
        emulated=summary.emulated,
        num_prompt_tokens=summary.usage.prompt_tokens,
        num_output_tokens=summary.usage.output_tokens,
        num_cached_tokens=summary.usage.cached_prompt_tokens,
        time_to_first_token_s=summary.timings.time_to_first_token_ns / 1e9,
        total_time_s=summary.timings.total_time_ns / 1e9,
        num_rounds=statistics.num_rounds,
        num_draft_tokens=statistics.num_draft_tokens,
        num_accepted_tokens=statistics.num_accepted_tokens,
        num_plain_tokens=statistics.num_plain_tokens,
        num_missed_deadlines=statistics.num_missed_deadlines,
        mean_acceptance_length=statistics.mean_acceptance_length,
        acceptance_per_position=tuple(statistics.acceptance_per_position),
        reason=statistics.reason,
    )
