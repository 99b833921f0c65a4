"""Clients of all manners: patient, cancelling, slow to read, with a deadline. Each knows what it must hear."""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import grpc
import grpc.aio

from pilotfish.config import Config
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.tokenizer import emulated_tokenizer_folder, spoken_tokens
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.channel import PUBLIC_CHANNEL_OPTIONS
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc
from pilotfish.types import SamplingParams

Manner = Literal["patient", "cancels", "reads slowly", "has a deadline"]
SHARES: dict[Manner, float] = {"patient": 0.7, "cancels": 0.15, "reads slowly": 0.1, "has a deadline": 0.05}
MAX_TOKENS = (16, 96)
SLOW_READER_TOKENS = (300, 600)
_SLOW_OPTIONS = (*PUBLIC_CHANNEL_OPTIONS, ("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0))
"""So that a slow reader is felt by the server, and not by a socket's buffer alone."""
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One request."""

    prompt: str
    sampling: SamplingParams
    manner: Manner
    num_read: int
    """Tokens after which a client that cancels has had enough."""
    timeout_s: float


@dataclass(slots=True)
class Tally:
    """What became of the requests."""

    ends: Counter[str] = field(default_factory=Counter)
    """By manner and end."""
    failures: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    num_tokens: int = 0
    longest_gaps_s: list[float] = field(default_factory=list)
    """Of patient requests: the longest wait between two messages."""

    @property
    def num_ended(self) -> int:
        return sum(self.ends.values())


class Truth:
    """What an undisturbed run says."""

    def __init__(self, config: Config) -> None:
        self.tokenizer = Tokenizer.load(emulated_tokenizer_folder(config))
        spoken = spoken_tokens(self.tokenizer)
        self._language_model = HashLanguageModel(vocab_size=spoken.stop, first_token_id=spoken.start)

    def token_ids(self, plan: Plan, count: int) -> list[int]:
        """The first `count` tokens of the answer."""
        token_ids = list(self.tokenizer.encode(plan.prompt))
        start = len(token_ids)
        for _ in range(count):
            token_ids.append(self._language_model.next_token(token_ids, plan.sampling))
        return token_ids[start:]


def plans(count: int, seed: int) -> list[Plan]:
    """Requests drawn at random, the same for the same seed."""
    dice = random.Random(seed)
    manners = dice.choices(list(SHARES), list(SHARES.values()), k=count)
    return [
        _plan(f"request {index} of {seed}: tell me of the sea", manner, dice) for index, manner in enumerate(manners)
    ]


def _plan(prompt: str, manner: Manner, dice: random.Random) -> Plan:
    max_tokens = dice.randint(*(SLOW_READER_TOKENS if manner == "reads slowly" else MAX_TOKENS))
    temperature, seed = dice.choice(((0.0, 0), (0.9, dice.getrandbits(31))))
    return Plan(
        prompt,
        SamplingParams(temperature=temperature, seed=seed, max_tokens=max_tokens),
        manner,
        num_read=dice.randint(1, max_tokens),
        timeout_s=dice.uniform(0.02, 0.4) if manner == "has a deadline" else _TIMEOUT_S,
    )


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


def generate_request(plan: Plan) -> pb.GenerateRequest:
    """As the public API takes it."""
    sampling = plan.sampling
    return pb.GenerateRequest(
        text=plan.prompt,
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        seed=sampling.seed,
        ignore_eos=True,
    )
