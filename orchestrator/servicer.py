"""The public gRPC API, on top of the inference service."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import msgspec

import pilotfish
from orchestrator.answers.chunk_writer import WRITES_PER_PASS, write_chunks
from orchestrator.answers.loop_turns import LoopTurns
from orchestrator.api_security import Authenticator, client_id_of, host_of
from orchestrator.conversion import check_request, options_from_proto, prompt_from_proto
from orchestrator.inference import InferenceService
from orchestrator.requests.caller import Caller
from orchestrator.requests.identity import identified
from orchestrator.requests.prompt import TokenPrompt, text_of_tokens
from orchestrator.requests.request import PROPOSERS
from pilotfish.config import OrchestratorConfig
from pilotfish.rpc.answer import chunk_to_proto, summary_to_proto
from pilotfish.rpc.conversion import limits_to_proto, model_to_proto
from pilotfish.rpc.v1 import inference_pb2, inference_pb2_grpc
from pilotfish.security.link_token import AUTHORIZATION_KEY

CLIENT_ID_KEY = "x-client-id"
"""Request metadata: whose request it is, for the fair queue."""
_CALLER_KEYS = (AUTHORIZATION_KEY, CLIENT_ID_KEY)

GenerateContext = grpc.aio.ServicerContext[inference_pb2.GenerateRequest, inference_pb2.GenerateResponse]


class InferenceServicer(inference_pb2_grpc.InferenceServicer):
    """See inference.proto. The method names are gRPC's."""

    def __init__(self, service: InferenceService, config: OrchestratorConfig, authenticator: Authenticator) -> None:
        self._service = service
        self._config = config
        self._authenticator = authenticator
        self._turns = LoopTurns(WRITES_PER_PASS)

    async def Generate(  # type: ignore[override]  # noqa: N802  # it writes, so that a cancelled write ends it here
        self, request: inference_pb2.GenerateRequest, context: GenerateContext
    ) -> None:
        async with self._call(context) as caller:
            check_request(request, self._config.max_prompt_bytes)
            options = options_from_proto(request, self._service.defaults, self._service.tokenizer)
            prompt = prompt_from_proto(request, request.WhichOneof("prompt"))
            async with self._service.serving(prompt, options, caller) as answer:
                await write_chunks(
                    answer,
                    lambda chunk: context.write(chunk_to_proto(chunk)),
                    self._turns,
                    interval_tokens=self._config.stream_interval_tokens,
                )
                await context.write(summary_to_proto(answer.summary()))

    async def Tokenize(  # noqa: N802
        self, request: inference_pb2.TokenizeRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> inference_pb2.TokenizeResponse:
        async with self._call(context) as caller:
            with caller.request():
                check_request(request, self._config.max_prompt_bytes)
                prompt = prompt_from_proto(request, request.WhichOneof("input"))
                token_ids = await self._service.token_ids_of(prompt, caller.client_id)
                # A text that is somewhat too long has a length nonetheless.
                limit = self._service.max_context_tokens if isinstance(prompt, TokenPrompt) else len(token_ids)
                text = await text_of_tokens(
                    "the prompt", token_ids, self._service.tokenizer, limit, self._service.run_for(caller.client_id)
                )
            return inference_pb2.TokenizeResponse(token_ids=token_ids, text=text)

    async def GetModelInfo(  # noqa: N802
        self,
        request: inference_pb2.GetModelInfoRequest,  # noqa: ARG002
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> inference_pb2.GetModelInfoResponse:
        async with self._call(context):
            service = self._service
            link = await service.ready_target()
            limits = msgspec.structs.replace(link.limits, max_draft_tokens=service.targets.max_draft_tokens)
            return inference_pb2.GetModelInfoResponse(
                model=model_to_proto(service.named(link.model)),
                limits=limits_to_proto(limits),
                num_target_replicas=service.targets.num_connected,
                num_draft_replicas=service.drafts.num_connected,
                proposers=PROPOSERS,
                version=pilotfish.__version__,
            )

    @contextlib.asynccontextmanager
    async def _call(self, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Caller]:
        """All that is done for a call of this caller until its deadline. Its errors become statuses in the guard, which
        has to see them."""
        caller = caller_of(context, time.monotonic_ns(), self._authenticator)
        async with caller.deadline():
            yield caller


def caller_of(context: grpc.aio.ServicerContext[Any, Any], arrival_ns: int, authenticator: Authenticator) -> Caller:
    """Who calls: the holder of the API key, else the client that the metadata name, else the host that the call comes
    from. The call's trailing metadata get what it is called.

    Raises AuthenticationError where a key is needed and none that is known is shown.
    """
    identity = identified(context)
    metadata = {key: str(value) for key, value in context.invocation_metadata() or () if key in _CALLER_KEYS}
    allowance = authenticator.allowance(metadata.get(AUTHORIZATION_KEY, ""))
    # Without a deadline gRPC returns None, or an absurdly long time.
    timeout_s = context.time_remaining()
    client_id = client_id_of(allowance, metadata.get(CLIENT_ID_KEY, ""), host_of(context.peer()))
    return Caller(
        client_id=client_id, arrival_ns=arrival_ns, timeout_s=timeout_s, identity=identity, allowance=allowance
    )
