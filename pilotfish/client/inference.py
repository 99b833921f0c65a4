"""A blocking client of the public API, for the command line."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

import grpc

from pilotfish.client.access import OPEN_ACCESS, Access
from pilotfish.client.answer import Chunk, GenerateOptions, Prompt, ServiceInfo, Summary
from pilotfish.client.conversion import (
    info_from_proto,
    request_to_proto,
    set_prompt,
)
from pilotfish.rpc.answer import chunk_from_proto, summary_from_proto
from pilotfish.rpc.status import error_from_rpc
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc

CONNECT_TIMEOUT_S = 3.0
INFO_TIMEOUT_S = 5.0
TOKENIZE_TIMEOUT_S = 5.0


class InferenceClient:
    """One channel to an orchestrator. Errors of the server come as PilotfishError."""

    def __init__(
        self, address: str, *, access: Access = OPEN_ACCESS, connect_timeout_s: float = CONNECT_TIMEOUT_S
    ) -> None:
        """Raises ConfigError for certificates that cannot be read."""
        self._address = address
        self._access = access
        self._connect_timeout_s = connect_timeout_s
        self._channel = access.open_channel(address)
        self._stub = pb_grpc.InferenceStub(self._channel)

    def __enter__(self) -> Self:
        """Connect. Raises UnavailableError, saying what to do, when nobody listens."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout=self._connect_timeout_s)
        except grpc.FutureTimeoutError:
            self._channel.close()
            raise self._access.unreachable(self._address) from None
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
            response = self._stub.GetModelInfo(
                pb.GetModelInfoRequest(), timeout=INFO_TIMEOUT_S, metadata=self._access.metadata
            )
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        return info_from_proto(response)

    def generate(self, prompt: Prompt, options: GenerateOptions, *, timeout_s: float) -> Iterator[Chunk | Summary]:
        """Stream an answer: chunks, then one summary. Closing the iterator cancels the call."""
        call = self._stub.Generate(request_to_proto(prompt, options), timeout=timeout_s, metadata=self._access.metadata)
        try:
            for response in call:
                if response.HasField("summary"):
                    yield summary_from_proto(response.summary)
                else:
                    yield chunk_from_proto(response.chunk)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        finally:
            call.cancel()  # type: ignore[no-untyped-call]

    def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        """The tokens of a prompt, those of the chat template included."""
        request = pb.TokenizeRequest()
        set_prompt(request, prompt)
        return tuple(self._tokenize(request).token_ids)

    def detokenize(self, token_ids: tuple[int, ...]) -> str:
        """The text of token ids."""
        return self._tokenize(pb.TokenizeRequest(tokens=pb.TokenPrompt(token_ids=token_ids))).text

    def _tokenize(self, request: pb.TokenizeRequest) -> pb.TokenizeResponse:
        try:
            return self._stub.Tokenize(request, timeout=TOKENIZE_TIMEOUT_S, metadata=self._access.metadata)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
