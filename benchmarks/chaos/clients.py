"""Clients of all manners: patient, cancelling, slow to read, with a deadline. Each knows what it must hear."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc
import grpc.aio
from chaos.plan import Plan, generate_request
from chaos.truth import Truth

from pilotfish.rpc.channel import PUBLIC_CHANNEL_OPTIONS
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc

_SLOW_OPTIONS = (*PUBLIC_CHANNEL_OPTIONS, ("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0))
"""Options by which the server feels a slow reader, not a socket's buffer alone."""


@dataclass(slots=True)
class Tally:
    """What became of the requests."""

    ends: Counter[str] = field(default_factory=Counter)
    """Requests by manner and end."""
    failures: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    num_tokens: int = 0
    num_accepted_tokens: int = 0
    """Draft tokens that the target accepted, in answers that came to their end."""
    longest_gaps_s: list[float] = field(default_factory=list)
    """The longest wait between two messages of each patient request."""

    @property
    def num_ended(self) -> int:
        return sum(self.ends.values())


class Clients:
    """`async with Clients(addresses, truth) as clients`: connections to all orchestrators, used in turn."""

    def __init__(self, addresses: Sequence[str], truth: Truth) -> None:
        self.tally = Tally()
        self._truth = truth
        self._channels = [grpc.aio.insecure_channel(address, options=PUBLIC_CHANNEL_OPTIONS) for address in addresses]
        self._slow_channels = [grpc.aio.insecure_channel(address, options=_SLOW_OPTIONS) for address in addresses]
        self._stubs = itertools.cycle([pb_grpc.InferenceStub(channel) for channel in self._channels])
        self._slow_stubs = itertools.cycle([pb_grpc.InferenceStub(channel) for channel in self._slow_channels])

    async def close(self) -> None:
        await asyncio.gather(*(channel.close() for channel in (*self._channels, *self._slow_channels)))

    async def run(self, plans: Sequence[Plan], concurrency: int) -> None:
        """All requests, `concurrency` at a time."""
        waiting = iter(plans)

        async def keep_asking() -> None:
            for plan in waiting:
                await self.ask(plan)

        await asyncio.gather(*(keep_asking() for _ in range(concurrency)))

    async def ask(self, plan: Plan) -> None:
        """One request, held against the truth."""
        stub = next(self._slow_stubs if plan.manner == "reads slowly" else self._stubs)
        call = stub.Generate(generate_request(plan), timeout=plan.timeout_s)
        token_ids: list[int] = []
        texts: list[str] = []
        try:
            is_whole = await self._read(call, plan, token_ids, texts)
            end = "whole" if is_whole else "cancelled"
        except grpc.aio.AioRpcError as error:
            is_whole = False
            if plan.manner == "has a deadline" and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                end = "deadline"
            else:
                end = "failed"
                self.tally.failures.append(f"{plan.prompt!r}: {error.code().name}: {error.details()}")
        finally:
            call.cancel()
        self._judge(plan, token_ids, "".join(texts), is_whole=is_whole)
        self.tally.ends[f"{plan.manner}: {end}"] += 1
        self.tally.num_tokens += len(token_ids)

    async def _read(
        self,
        call: grpc.aio.UnaryStreamCall[pb.GenerateRequest, pb.GenerateResponse],
        plan: Plan,
        token_ids: list[int],
        texts: list[str],
    ) -> bool:
        """Fill token_ids and texts; whether the answer came to its end."""
        last_s, longest_s = time.perf_counter(), 0.0
        async for message in call:
            now_s = time.perf_counter()
            last_s, longest_s = now_s, max(longest_s, now_s - last_s)
            if message.HasField("summary"):
                self.tally.num_accepted_tokens += message.summary.speculation.num_accepted_tokens
                if plan.manner == "patient":
                    self.tally.longest_gaps_s.append(longest_s)
                return True
            token_ids += message.chunk.token_ids
            texts.append(message.chunk.text)
            if plan.manner == "cancels" and len(token_ids) >= plan.num_read:
                return False
            if plan.manner == "reads slowly":
                await asyncio.sleep(0.005)
        raise AssertionError("the stream ended without a summary or an error")

    def _judge(self, plan: Plan, token_ids: list[int], text: str, *, is_whole: bool) -> None:
        expected = self._truth.token_ids(plan, plan.sampling.max_tokens if is_whole else len(token_ids))
        is_right = token_ids == expected
        if is_right and is_whole:
            is_right = text == self._truth.tokenizer.decode(expected)
        if not is_right:
            self.tally.wrong.append(f"{plan.prompt!r} ({plan.manner}): {len(token_ids)} tokens")
