"""An asyncio client of the public API, for programs that ask many things at once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import grpc
import grpc.aio

from pilotfish.client.access import OPEN_ACCESS, Access
from pilotfish.client.answer import GenerateOptions, Prompt, Summary
from pilotfish.client.conversion import request_to_proto
from pilotfish.client.inference import CONNECT_TIMEOUT_S
from pilotfish.errors import InternalError
from pilotfish.rpc.answer import summary_from_proto
from pilotfish.rpc.status import error_from_rpc
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc

OnTokens = Callable[[Sequence[int]], None]
"""Called with the ids of tokens that came together."""


class AsyncInferenceClient:
    """A few channels to an orchestrator, used in turn. Errors of the server come as PilotfishError.

    Belongs to the event loop that it was made on.
    """

    def __init__(
        self,
        address: str,
        *,
        access: Access = OPEN_ACCESS,
        num_channels: int = 1,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        """num_channels: TCP connections; what one carries in a moment waits for the same flow-control window.

        Raises ConfigError for certificates that cannot be read.
        """
        self._address = address
        self._access = access
        self._connect_timeout_s = connect_timeout_s
        self._channels = [access.open_async_channel(address) for _ in range(num_channels)]
        self._stubs = itertools.cycle([pb_grpc.InferenceStub(channel) for channel in self._channels])

    async def __aenter__(self) -> Self:
        """Connect. Raises UnavailableError, saying what to do, when nobody listens."""
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await asyncio.gather(*(channel.channel_ready() for channel in self._channels))
        except TimeoutError:
            await self._close()
            raise self._access.unreachable(self._address) from None
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()

    async def follow(
        self, prompt: Prompt, options: GenerateOptions, *, timeout_s: float, on_tokens: OnTokens
    ) -> Summary:
        """Run one request to its end, handing over token ids as they come: nothing else is built per token.

        Cancelling the awaiting task cancels the call. Raises PilotfishError.
        """
        call = next(self._stubs).Generate(
            request_to_proto(prompt, options), timeout=timeout_s, metadata=self._access.metadata
        )
        summary = None
        try:
            async for response in call:
                if response.HasField("summary"):
                    summary = response.summary
                elif response.chunk.token_ids:
                    on_tokens(response.chunk.token_ids)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None
        finally:
            call.cancel()
        if summary is None:
            raise InternalError("the answer broke off before its summary")
        return summary_from_proto(summary)

    async def _close(self) -> None:
        await asyncio.gather(*(channel.close(None) for channel in self._channels))
