"""What an undisturbed run says: the answers that clients are held against."""

from collections.abc import Iterable
from typing import Protocol

import grpc
import grpc.aio
from chaos.plan import Plan, generate_request

from pilotfish.config import Config
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.tokenizer import emulated_tokenizer_folder, spoken_tokens
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc as pb_grpc


class Truth(Protocol):
    """See the module."""

    tokenizer: Tokenizer

    def token_ids(self, plan: Plan, count: int) -> list[int]:
        """The first `count` tokens of the answer."""


class EmulatedTruth:
    """What emulated engines answer: computed."""

    def __init__(self, config: Config) -> None:
        self.tokenizer = Tokenizer.load(emulated_tokenizer_folder(config))
        spoken = spoken_tokens(self.tokenizer)
        self._language_model = HashLanguageModel(vocab_size=spoken.stop, first_token_id=spoken.start)

    def token_ids(self, plan: Plan, count: int) -> list[int]:
        token_ids = list(self.tokenizer.encode(plan.prompt))
        start = len(token_ids)
        for _ in range(count):
            token_ids.append(self._language_model.next_token(token_ids, plan.sampling))
        return token_ids[start:]


class RecordedTruth:
    """What real models answer: to each question the longest, decoded plainly and alone before anything is struck."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._answers: dict[tuple[str, float, int], list[int]] = {}

    async def record(self, address: str, plans: Iterable[Plan]) -> None:
        """Ask the orchestrator at `address` what the plans ask, one after the other."""
        longest: dict[tuple[str, float, int], Plan] = {}
        for plan in plans:
            known = longest.setdefault(_key(plan), plan)
            if plan.sampling.max_tokens > known.sampling.max_tokens:
                longest[_key(plan)] = plan
        async with grpc.aio.insecure_channel(address) as channel:
            stub = pb_grpc.InferenceStub(channel)
            for key, plan in longest.items():
                if len(self._answers.get(key, ())) >= plan.sampling.max_tokens:
                    continue
                request = generate_request(plan)
                request.speculation.mode = pb.SPECULATION_MODE_OFF
                self._answers[key] = [
                    token_id async for message in stub.Generate(request) for token_id in message.chunk.token_ids
                ]

    def token_ids(self, plan: Plan, count: int) -> list[int]:
        return self._answers[_key(plan)][:count]


def _key(plan: Plan) -> tuple[str, float, int]:
    return plan.prompt, plan.sampling.temperature, plan.sampling.seed
