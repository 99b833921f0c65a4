"""The public API over real loopback gRPC, with emulated engines behind real replica servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest
import tokenizers
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tokenizers import decoders, models, pre_tokenizers

from orchestrator.replicas.directory import ReplicaDirectory
from orchestrator.server import SERVICE_NAME, OrchestratorServer
from pilotfish.config import Config, OrchestratorConfig, SpeculationConfig, TargetConfig
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.errors import ModelError
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.handshake import Welcome
from pilotfish.rpc.replica.stream_server import StreamServer
from pilotfish.rpc.server import GrpcServer
from pilotfish.rpc.stream import CODECS
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc, types_pb2
from pilotfish.types import Limits

SPECIAL_TOKENS = ["<|start|>", "<|end|>"]
CHAT_TEMPLATE = "{% for message in messages %}<|start|>{{ message['content'] }}<|end|>{% endfor %}"
VOCAB_SIZE = 97
MAX_CONTEXT_TOKENS = 100_000


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of printable ASCII characters, one token each; no weights."""
    folder = tmp_path_factory.mktemp("ascii")
    characters = ["\u0120", *(chr(code) for code in range(0x21, 0x7F))]
    backend = tokenizers.Tokenizer(
        models.BPE(vocab={token: index for index, token in enumerate([*SPECIAL_TOKENS, *characters])}, merges=[])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(SPECIAL_TOKENS)
    backend.save(str(folder / "tokenizer.json"))
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": MAX_CONTEXT_TOKENS,
        "eos_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))
    return folder


class Replica:
    """An emulated engine behind a replica's gRPC front."""

    def __init__(self, engine, front: StreamServer, server: GrpcServer) -> None:
        self.engine = engine
        self.front = front
        self.server = server

    @property
    def address(self) -> str:
        return self.server.address

    @classmethod
    async def start(cls, service, engine, replica_id: str) -> Replica:
        codec = CODECS[service]
        front = StreamServer(codec, engine, Welcome(model=engine.model, limits=engine.limits, replica_id=replica_id))
        front.start()
        server = await GrpcServer.start(
            "127.0.0.1",
            0,
            register=lambda grpc_server: codec.add_to_server(front.connect, grpc_server),
            service_names=(codec.service_name,),
            port_setting="test.port",
        )
        return cls(engine, front, server)

    async def kill(self) -> None:
        await self.server.stop(0)
        await self.front.close()
        await self.engine.close()


class Stack:
    """Replicas, an orchestrator and a client, all on this event loop."""

    def __init__(self, folder: Path, exits: contextlib.AsyncExitStack) -> None:
        self.folder = folder
        self.fingerprint = Tokenizer.load(folder).fingerprint
        self.replicas: list[Replica] = []
        self.directory = ReplicaDirectory()
        self.server: OrchestratorServer
        self.stub: inference_pb2_grpc.InferenceStub
        self._exits = exits

    def engine(self, role="target", **options) -> EmulatedEngine:
        options.setdefault("tokenizer_fingerprint", self.fingerprint)
        options.setdefault("max_context_tokens", MAX_CONTEXT_TOKENS)
        return EmulatedEngine(
            role, language_model=HashLanguageModel(vocab_size=VOCAB_SIZE, first_token_id=2), **options
        )

    async def add(self, pool, engine=None) -> Replica:
        replica = await Replica.start(pool, engine or self.engine(pool), f"{pool}-{len(self.replicas)}")
        self._exits.push_async_callback(replica.kill)
        self.replicas.append(replica)
        self.directory.set_replicas(pool, {**self.directory.replicas(pool), replica.address: replica.address})
        return replica

    def config(self, **options) -> Config:
        speculation = options.pop("speculation", SpeculationConfig(draft_deadline_ms=5000))
        options.setdefault("connect_timeout_s", 10)
        return Config(
            target=TargetConfig(model=str(options.pop("model", self.folder))),
            orchestrator=OrchestratorConfig(port=0, speculation=speculation, **options),
            cache_dir="unused",
        )

    async def serve(self, **options) -> None:
        """Start the orchestrator and wait until it has dialled every replica."""
        self.server = await OrchestratorServer.start(self.config(**options), self.directory)
        self._exits.push_async_callback(self.server.drain_and_stop, 0)
        channel = grpc.aio.insecure_channel(self.server.address)
        self._exits.push_async_callback(channel.close)
        self.channel = channel
        self.stub = inference_pb2_grpc.InferenceStub(channel)
        for pool in ("target", "draft"):
            await until(lambda pool=pool: self.num_dialled(pool) == len(self.directory.replicas(pool)))

    def num_dialled(self, pool) -> int:
        links = self.server.service.targets.links if pool == "target" else self.server.service.drafts.links
        return sum(link.is_connected or link.problem != "not connected yet" for link in links)

    async def generate(self, **fields) -> Answer:
        return await Answer.read(self.stub.Generate(request(**fields), timeout=60))

    def num_sequences(self) -> int:
        """Sequences held anywhere: by the orchestrator, the fronts and the engines."""
        service = self.server.service
        own = service.targets.num_sequences + service.drafts.num_sequences + service.num_active_requests
        return own + sum(
            len(replica.front.table) + replica.engine.load.num_sequences_running for replica in self.replicas
        )

    async def nothing_is_left(self) -> None:
        await until(lambda: self.num_sequences() == 0)


class Answer:
    def __init__(self, chunks: list[pb.Chunk], summary: pb.Summary) -> None:
        self.summary = summary
        self.text = "".join(chunk.text for chunk in chunks)
        self.token_ids = [token_id for chunk in chunks for token_id in chunk.token_ids]
        self.origins = [origin for chunk in chunks for origin in chunk.origins]

    @classmethod
    async def read(cls, call) -> Answer:
        messages = [message async for message in call]
        assert [message.HasField("summary") for message in messages] == [False] * (len(messages) - 1) + [True]
        return cls([message.chunk for message in messages[:-1]], messages[-1].summary)


def request(mode=pb.SPECULATION_MODE_ON, k=4, proposer="", acceptance=0, **fields) -> pb.GenerateRequest:
    if not {"text", "tokens", "chat"} & fields.keys():
        fields["text"] = "Once upon a time"
    fields.setdefault("max_tokens", 40)
    fields.setdefault("temperature", 0)
    fields.setdefault(
        "speculation",
        pb.SpeculationOptions(mode=mode, num_speculative_tokens=k, proposer=proposer, acceptance=acceptance),
    )
    return pb.GenerateRequest(**fields)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that happens elsewhere on this event loop; the test's own timeout bounds it."""
    while not condition():  # noqa: ASYNC110  # what is awaited has no event that a test could see
        await asyncio.sleep(0.005)


async def until_idle(replica: Replica) -> None:
    """Wait until the engine has had nothing to do for longer than the gap between two runs."""
    num_idle_looks = 0
    while num_idle_looks < 20:
        await asyncio.sleep(0.005)
        num_idle_looks = 0 if replica.engine.core.has_work else num_idle_looks + 1


@contextlib.asynccontextmanager
async def failing_with(code: grpc.StatusCode, message: str) -> AsyncIterator[None]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        yield
    assert caught.value.code() is code, caught.value.details()
    assert message in caught.value.details()
    assert "Traceback" not in caught.value.details()


@pytest.fixture
async def stack(model_folder: Path) -> AsyncIterator[Stack]:
    async with contextlib.AsyncExitStack() as exits:
        yield Stack(model_folder, exits)


@pytest.fixture
async def full_stack(stack: Stack) -> Stack:
    """One target, one drafter that is right four times out of five."""
    await stack.add("target")
    await stack.add("draft")
    await stack.serve()
    return stack


OFF = pb.SPECULATION_MODE_OFF


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.8, "seed": 7}])
@pytest.mark.parametrize("proposer", ["draft", "ngram", "suffix"])
async def test_speculation_changes_nothing_but_the_rounds(full_stack: Stack, proposer, sampling) -> None:
    plain = await full_stack.generate(mode=OFF, **sampling)
    speculative = await full_stack.generate(proposer=proposer, **sampling)
    auto = await full_stack.generate(mode=pb.SPECULATION_MODE_AUTO, proposer=proposer, **sampling)
    assert speculative.token_ids == plain.token_ids == auto.token_ids
    assert speculative.text == plain.text == auto.text
    assert len(plain.token_ids) == 40
    await full_stack.nothing_is_left()


@pytest.mark.parametrize("acceptance", [0, types_pb2.ACCEPTANCE_MODE_REJECTION])
@pytest.mark.parametrize("proposer", ["draft", "ngram", "suffix"])
async def test_trees_change_nothing_but_the_rounds(stack: Stack, proposer, acceptance) -> None:
    await stack.add("target")
    await stack.add("draft")
    await stack.serve(speculation=SpeculationConfig(draft_deadline_ms=5000, tree_nodes=9, tree_branching=3))
    plain = await stack.generate(mode=OFF, acceptance=acceptance, temperature=0.8, seed=7)
    for mode in (pb.SPECULATION_MODE_ON, pb.SPECULATION_MODE_AUTO):
        answer = await stack.generate(mode=mode, proposer=proposer, acceptance=acceptance, temperature=0.8, seed=7)
        assert answer.token_ids == plain.token_ids
    await stack.nothing_is_left()


async def test_the_summary_accounts_for_every_token(full_stack: Stack) -> None:
    answer = await full_stack.generate(max_tokens=64)
    summary, speculation = answer.summary, answer.summary.speculation
    counts = {origin: answer.origins.count(origin) for origin in set(answer.origins)}
    own = counts.get(types_pb2.TOKEN_ORIGIN_RECOVERED, 0) + counts.get(types_pb2.TOKEN_ORIGIN_BONUS, 0)
    assert counts[types_pb2.TOKEN_ORIGIN_ACCEPTED] == speculation.num_accepted_tokens > 0
    assert counts[types_pb2.TOKEN_ORIGIN_PLAIN] == speculation.num_plain_tokens
    # The block that reaches max_tokens may end with an accepted token.
    assert own in (speculation.num_rounds, speculation.num_rounds - 1)
    assert speculation.num_plain_tokens + speculation.num_accepted_tokens + own == 64
    assert speculation.mean_acceptance_length == pytest.approx(
        1 + speculation.num_accepted_tokens / speculation.num_rounds
    )
    assert list(speculation.acceptance_per_position) == sorted(speculation.acceptance_per_position, reverse=True)
    assert summary.usage.prompt_tokens == len("Once upon a time")
    assert summary.usage.output_tokens == len(answer.token_ids) == 64
    assert 0 < summary.timings.time_to_first_token_ns <= summary.timings.total_time_ns
    assert summary.finish_reason == types_pb2.FINISH_REASON_LENGTH
    assert summary.model_id == "emulated"
    assert summary.emulated
    assert speculation.reason == ""


async def test_a_seed_is_drawn_and_told_and_reproduces_the_answer(full_stack: Stack) -> None:
    first = await full_stack.generate(temperature=1)
    again = await full_stack.generate(temperature=1, seed=first.summary.seed)
    other = await full_stack.generate(temperature=1)
    assert again.token_ids == first.token_ids != other.token_ids


async def test_prompts_come_as_text_tokens_and_chats(full_stack: Stack) -> None:
    text = await full_stack.generate(text="abc")
    tokenized = await full_stack.stub.Tokenize(pb.TokenizeRequest(text="abc"))
    tokens = await full_stack.generate(tokens=pb.TokenPrompt(token_ids=tokenized.token_ids))
    assert tokens.token_ids == text.token_ids
    chat = pb.ChatPrompt(messages=[pb.ChatMessage(role="user", content="abc")])
    templated = await full_stack.stub.Tokenize(pb.TokenizeRequest(chat=chat))
    assert templated.text == "<|start|>abc<|end|>"
    assert (await full_stack.generate(chat=chat)).summary.usage.prompt_tokens == 5


async def test_a_drafter_with_another_tokenizer_is_skipped(stack: Stack) -> None:
    await stack.add("target")
    await stack.add("draft", stack.engine("draft", tokenizer_fingerprint="another"))
    await stack.serve()
    reason = (await stack.generate()).summary.speculation.reason
    assert "both need models with the same tokenizer" in reason


async def test_without_a_target_requests_fail_and_health_says_so(stack: Stack) -> None:
    await stack.serve(connect_timeout_s=0.05)
    async with failing_with(grpc.StatusCode.UNAVAILABLE, "there is no target replica; waited 0.05 s"):
        await stack.generate()
    health = health_pb2_grpc.HealthStub(stack.channel)
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == not_serving
    watch = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE_NAME))
    assert (await watch.read()).status == not_serving
    target = await stack.add("target")
    assert (await watch.read()).status == serving
    await target.kill()
    assert (await watch.read()).status == not_serving
    watch.cancel()


async def test_a_target_with_another_tokenizer_is_refused_with_a_reason(stack: Stack) -> None:
    await stack.add("target", stack.engine(tokenizer_fingerprint="another"))
    await stack.serve(connect_timeout_s=0.05)
    async with failing_with(grpc.StatusCode.UNAVAILABLE, "both need models with the same tokenizer"):
        await stack.generate()


@pytest.mark.parametrize("mode", [OFF, pb.SPECULATION_MODE_ON])
@pytest.mark.parametrize("num_read", [0, 1, 4])
async def test_a_cancelled_request_frees_everything(stack: Stack, mode, num_read) -> None:
    await stack.add("target", stack.engine(step_time_s=0.002))
    await stack.add("draft", stack.engine("draft", step_time_s=0.002))
    await stack.serve()
    call = stack.stub.Generate(request(mode=mode, max_tokens=50_000))
    for _ in range(num_read):
        await anext(aiter(call))
    await until(lambda: stack.num_sequences() > 0)
    call.cancel()
    await stack.nothing_is_left()


async def test_a_deadline_of_the_client_frees_everything(stack: Stack) -> None:
    await stack.add("target", stack.engine(step_time_s=0.005))
    await stack.serve()
    async with failing_with(grpc.StatusCode.DEADLINE_EXCEEDED, ""):
        await Answer.read(stack.stub.Generate(request(max_tokens=50_000), timeout=0.1))
    await stack.nothing_is_left()


async def test_a_slow_reader_pauses_its_own_sequence_only(stack: Stack) -> None:
    num_tokens = 10_000
    target = await stack.add("target")
    await stack.serve(slow_reader_tokens=64)
    # A small window that does not grow: else all of it is on the way when a busy machine makes few, large messages.
    options = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 4096))
    channel = grpc.aio.insecure_channel(stack.server.address, options=options)
    idle_reader = inference_pb2_grpc.InferenceStub(channel).Generate(request(mode=OFF, max_tokens=num_tokens))
    await until(lambda: target.engine.num_sequences == 1)
    # The target falls idle with the answer unfinished: what is not read is not generated.
    await until_idle(target)
    assert target.engine.num_sequences == 1
    assert len((await stack.generate(mode=OFF)).token_ids) == 40
    num_read = 0
    async for message in idle_reader:
        num_read += len(message.chunk.token_ids)
    assert num_read == num_tokens
    await channel.close()
    await stack.nothing_is_left()


@pytest.mark.parametrize("mode", [OFF, pb.SPECULATION_MODE_ON, pb.SPECULATION_MODE_AUTO])
async def test_fifty_requests_at_once_get_their_own_answers(stack: Stack, mode) -> None:
    await stack.add("target")
    await stack.add("target")
    await stack.add("draft")
    await stack.serve()
    prompts = [f"Request number {number}" for number in range(50)]
    alone = [await stack.generate(mode=OFF, text=prompt) for prompt in prompts]
    together = await asyncio.gather(*(stack.generate(mode=mode, text=prompt) for prompt in prompts))
    assert [answer.text for answer in together] == [answer.text for answer in alone]
    assert len({answer.text for answer in together}) == 50
    await stack.nothing_is_left()


async def test_more_requests_than_a_target_takes_wait_for_their_turn(stack: Stack) -> None:
    target = await stack.add("target", stack.engine(limits=Limits(max_draft_tokens=16, max_sequences=2)))
    await stack.serve()
    prompts = [f"Request number {number}" for number in range(8)]
    alone = [await stack.generate(text=prompt) for prompt in prompts]
    together = await asyncio.gather(*(stack.generate(text=prompt) for prompt in prompts))
    assert [answer.text for answer in together] == [answer.text for answer in alone]
    assert target.front.num_connections == 1
    await stack.nothing_is_left()


def speculation(**fields) -> pb.SpeculationOptions:
    return pb.SpeculationOptions(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": ""}, "the prompt is empty"),
        ({"tokens": pb.TokenPrompt(token_ids=[5] * MAX_CONTEXT_TOKENS)}, "it must leave room"),
        ({"tokens": pb.TokenPrompt(token_ids=[5, VOCAB_SIZE])}, "the vocabulary ends at 96"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"stop_token_ids": [VOCAB_SIZE]}, "stop_token_ids holds token id 97"),
        ({"logit_bias": [types_pb2.LogitBias(token_id=1000, bias=1)]}, "logit_bias holds token id 1000"),
        ({"speculation": speculation(num_speculative_tokens=17)}, "num_speculative_tokens is 17"),
        ({"speculation": speculation(mode=9)}, "speculation mode 9 is unknown"),
        ({"speculation": speculation(acceptance=9)}, "AcceptanceMode 9 is unknown"),
    ],
)
async def test_bad_input_is_refused_with_what_is_wrong(full_stack: Stack, fields, message) -> None:
    async with failing_with(grpc.StatusCode.INVALID_ARGUMENT, message):
        await full_stack.generate(**fields)
    await full_stack.nothing_is_left()


async def test_a_prompt_of_ten_megabytes_is_refused_by_its_size(full_stack: Stack) -> None:
    prompt = "x" * 10_000_000
    for call in (
        lambda: full_stack.generate(text=prompt),
        lambda: full_stack.stub.Tokenize(pb.TokenizeRequest(text=prompt)),
    ):
        async with failing_with(grpc.StatusCode.INVALID_ARGUMENT, "bytes; at most 4000000 are accepted"):
            await call()
    assert len((await full_stack.generate()).token_ids) == 40


async def test_the_model_is_described(full_stack: Stack) -> None:
    info = await full_stack.stub.GetModelInfo(pb.GetModelInfoRequest())
    assert (info.model.model_id, info.model.vocab_size) == ("emulated", VOCAB_SIZE)
    assert (info.num_target_replicas, info.num_draft_replicas) == (1, 1)
    assert list(info.proposers) == ["draft", "ngram", "suffix", "eagle3", "medusa", "early_exit"]
    assert info.limits.max_draft_tokens == 16
    assert info.version


async def test_tokens_are_detokenised(full_stack: Stack) -> None:
    token_ids = (await full_stack.stub.Tokenize(pb.TokenizeRequest(text="Hello, world"))).token_ids
    answer = await full_stack.stub.Tokenize(pb.TokenizeRequest(tokens=pb.TokenPrompt(token_ids=token_ids)))
    assert answer.text == "Hello, world"
    async with failing_with(grpc.StatusCode.INVALID_ARGUMENT, "the vocabulary ends at"):
        await full_stack.stub.Tokenize(pb.TokenizeRequest(tokens=pb.TokenPrompt(token_ids=[VOCAB_SIZE])))


async def test_draining_lets_running_requests_end_and_refuses_new_ones(stack: Stack) -> None:
    await stack.add("target", stack.engine(step_time_s=0.002))
    await stack.serve()
    call = stack.stub.Generate(request(max_tokens=100))
    await anext(aiter(call))
    stopping = asyncio.create_task(stack.server.drain_and_stop(30))
    answer = await Answer.read(call)
    assert answer.summary.usage.output_tokens == 100
    await stopping
    await stack.server.wait_closed()
    with pytest.raises(grpc.aio.AioRpcError):
        await stack.generate()
    await until(lambda: all(len(replica.front.table) == 0 for replica in stack.replicas))


async def test_the_tokenizer_comes_from_the_target_where_the_model_is_not_known(stack: Stack) -> None:
    await stack.add("target", stack.engine(tokenizer_path=str(stack.folder)))
    await stack.serve(model="no-such-model")
    assert (await stack.generate()).text


async def test_without_any_tokenizer_the_orchestrator_does_not_start(stack: Stack) -> None:
    with pytest.raises(ModelError, match="no-such-model"):
        await OrchestratorServer.start(stack.config(model="no-such-model"), stack.directory)
    await stack.add("target", stack.engine(tokenizer_path="/nowhere"))
    with pytest.raises(ModelError, match="/nowhere cannot be read either"):
        await OrchestratorServer.start(stack.config(model="no-such-model"), stack.directory)


async def run_process(*overrides: str) -> asyncio.subprocess.Process:
    arguments = [argument for override in overrides for argument in ("--set", override)]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "orchestrator",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
async def test_the_process_says_when_it_is_ready_and_stops_cleanly(stack: Stack, signal_number) -> None:
    target = await stack.add("target")
    process = await run_process(
        f"target.model={stack.folder}",
        "orchestrator.port=0",
        f"orchestrator.target_addresses=['{target.address}']",
    )
    line = (await process.stdout.readline()).decode()
    ready = re.fullmatch(r"orchestrator ready on (\S+) \(model (\S+), 1 target, 0 draft, http://(\S+)\)\n", line)
    assert ready, line
    async with grpc.aio.insecure_channel(ready[1]) as channel:
        answer = await Answer.read(inference_pb2_grpc.InferenceStub(channel).Generate(request()))
        assert len(answer.token_ids) == 40
    process.send_signal(signal_number)
    output, _ = await process.communicate()
    assert (process.returncode, output) == (0, b"")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("orchestrator.prt=1", "orchestrator.prt"),
        ("orchestrator.target_addresses=[]", "orchestrator.target_addresses is empty"),
        ("target.model=no-such-model", "no-such-model"),
    ],
)
async def test_a_process_that_cannot_start_says_why_in_one_line(stack: Stack, override, message) -> None:
    nobody = ("orchestrator.target_addresses=['127.0.0.1:1']", "orchestrator.connect_timeout_s=0.2")
    process = await run_process("orchestrator.port=0", *nobody, "log_level=ERROR", override)
    output, errors = await process.communicate()
    assert (process.returncode, output) == (1, b"")
    (line,) = errors.decode().splitlines()
    assert line.startswith("error: ")
    assert message in line
