"""Replicas with emulated engines, orchestrators that read one directory, and clients; all on this event loop."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from orchestrator.replicas.directory import ReplicaDirectory
from orchestrator.server import OrchestratorServer
from orchestrator.servicer import CLIENT_ID_KEY
from pilotfish.config import Config, OrchestratorConfig, SpeculationConfig, TargetConfig
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.stream import CODECS
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc
from tests.support.stack import Answer
from tests.support.tiny_llama import save_printable_tokenizer
from tests.support.until import until

SPECIAL_TOKENS = ["<|start|>", "<|end|>"]
CHAT_TEMPLATE = "{% for message in messages %}<|start|>{{ message['content'] }}<|end|>{% endfor %}"
VOCAB_SIZE = 97
MAX_CONTEXT_TOKENS = 100_000


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of printable ASCII characters, one token each; no weights."""
    folder = tmp_path_factory.mktemp("ascii")
    save_printable_tokenizer(folder, SPECIAL_TOKENS, chat_template=CHAT_TEMPLATE)
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": MAX_CONTEXT_TOKENS,
        "eos_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


async def read_answer(call: Any) -> Answer:
    """To its end, which its summary is."""
    answer = Answer()
    async for message in call:
        assert answer.summary is None
        answer.add(message)
    assert answer.summary is not None
    return answer


class Orchestrator:
    """One orchestrator and a client of it."""

    def __init__(self, server: OrchestratorServer, channel: grpc.aio.Channel) -> None:
        self.server, self.service, self.channel = server, server.service, channel
        self.stub = inference_pb2_grpc.InferenceStub(channel)

    def call(
        self,
        *,
        mode: int = pb.SPECULATION_MODE_ON,
        client_id: str = "",
        timeout: float = 60,
        **fields: Any,
    ) -> Any:
        """A request under way."""
        if not {"text", "tokens", "chat"} & fields.keys():
            fields["text"] = "Once upon a time"
        speculation = pb.SpeculationOptions(mode=mode, num_speculative_tokens=4)
        fields = {"max_tokens": 40, "temperature": 0, "speculation": speculation, **fields}
        metadata = ((CLIENT_ID_KEY, client_id),) if client_id else ()
        return self.stub.Generate(pb.GenerateRequest(**fields), timeout=timeout, metadata=metadata)

    async def generate(self, **fields: Any) -> Answer:
        return await read_answer(self.call(**fields))


class Stack:
    """Replicas in a directory, and the orchestrators that read it."""

    def __init__(self, folder: Path, exits: contextlib.AsyncExitStack) -> None:
        self.folder = folder
        self.directory = ReplicaDirectory()
        self.engines: list[EmulatedEngine] = []
        self.orchestrators: list[Orchestrator] = []
        self._exits = exits

    def engine(self, role: str = "target", **options: Any) -> EmulatedEngine:
        options.setdefault("tokenizer_fingerprint", Tokenizer.load(self.folder).fingerprint)
        options.setdefault("max_context_tokens", MAX_CONTEXT_TOKENS)
        return EmulatedEngine(
            role, language_model=HashLanguageModel(vocab_size=VOCAB_SIZE, first_token_id=2), **options
        )

    async def add(self, pool: str, **options: Any) -> ReplicaServer:
        """Another replica, whose engine has these options; its engine is the last of `engines`."""
        engine = self.engine(pool, **options)
        server = await ReplicaServer.start(CODECS[pool], engine, host="127.0.0.1", port=0, port_setting="test.port")
        self._exits.push_async_callback(server.drain_and_stop, 0)
        self.engines.append(engine)
        self.directory.set_replicas(pool, {**self.directory.replicas(pool), server.address: server.address})
        return server

    def config(self, **options: Any) -> Config:
        """options: of the orchestrator; `model`: the target's."""
        options = {"speculation": SpeculationConfig(draft_deadline_ms=5000), "connect_timeout_s": 10, **options}
        return Config(
            target=TargetConfig(model=str(options.pop("model", self.folder))),
            orchestrator=OrchestratorConfig(port=0, **options),
            cache_dir="unused",
        )

    async def serve(self, **options: Any) -> Orchestrator:
        """Another orchestrator, which has dialled every replica."""
        server = await OrchestratorServer.start(self.config(**options), self.directory)
        self._exits.push_async_callback(server.drain_and_stop, 0)
        channel = grpc.aio.insecure_channel(server.address)
        self._exits.push_async_callback(channel.close)
        for pool, links in (("target", server.service.targets), ("draft", server.service.drafts)):
            num_known = len(self.directory.replicas(pool))
            await until(lambda links=links, num_known=num_known: num_dialled(links) == num_known)
        self.orchestrators.append(Orchestrator(server, channel))
        return self.orchestrators[-1]

    def num_sequences(self) -> int:
        """Held anywhere: by the orchestrators and the engines."""
        services = [each.service for each in self.orchestrators]
        own = sum(each.targets.num_sequences + each.drafts.num_sequences for each in services)
        own += sum(each.request_queue.num_running + each.request_queue.num_waiting for each in services)
        return own + sum(engine.num_sequences for engine in self.engines)

    async def nothing_is_left(self) -> None:
        await until(lambda: self.num_sequences() == 0)


def num_dialled(pool: Any) -> int:
    return sum(link.is_connected or link.problem != "not connected yet" for link in pool.links)


@pytest.fixture
def read() -> Callable[[Any], Any]:
    """Reads a call to its end."""
    return read_answer


@pytest.fixture
async def stack(model_folder: Path) -> AsyncIterator[Stack]:
    async with contextlib.AsyncExitStack() as exits:
        yield Stack(model_folder, exits)


@pytest.fixture
async def orchestrator(stack: Stack) -> Orchestrator:
    """One target, one drafter that is right four times out of five."""
    await stack.add("target")
    await stack.add("draft")
    return await stack.serve()
