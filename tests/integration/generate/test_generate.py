"""The public API over real loopback gRPC, with emulated engines behind real replica servers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from orchestrator.server import SERVICE_NAME, OrchestratorServer
from pilotfish.errors import ModelError
from pilotfish.messages import Command, OpenSequence
from pilotfish.rpc.v1 import inference_pb2 as pb
from pilotfish.rpc.v1 import inference_pb2_grpc, types_pb2
from tests.support.until import until

OFF, ON = pb.SPECULATION_MODE_OFF, pb.SPECULATION_MODE_ON
VOCAB_SIZE, MAX_CONTEXT_TOKENS = 97, 100_000
"""As conftest.py has them."""


@contextlib.asynccontextmanager
async def failing_with(code: grpc.StatusCode, message: str) -> AsyncIterator[None]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        yield
    assert caught.value.code() is code, caught.value.details()
    assert message in caught.value.details()
    assert "Traceback" not in caught.value.details()


async def test_the_summary_accounts_for_every_token(orchestrator) -> None:
    answer = await orchestrator.generate(max_tokens=64)
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
    assert (summary.model_id, summary.emulated, speculation.reason) == ("emulated", True, "")


async def test_of_many_streams_at_once_none_loses_a_token(orchestrator) -> None:
    for turn in range(6):
        lengths = [20 + (turn + number) % 13 for number in range(64)]
        answers = await asyncio.gather(
            *(orchestrator.generate(text=f"swim {n}", max_tokens=length) for n, length in enumerate(lengths))
        )
        assert [len(answer.token_ids) for answer in answers] == lengths
        assert [answer.summary.usage.output_tokens for answer in answers] == lengths


async def test_a_seed_is_drawn_and_told_and_reproduces_the_answer(orchestrator) -> None:
    first = await orchestrator.generate(temperature=1)
    again = await orchestrator.generate(temperature=1, seed=first.summary.seed)
    other = await orchestrator.generate(temperature=1)
    assert again.token_ids == first.token_ids != other.token_ids


async def test_prompts_come_as_text_tokens_and_chats(orchestrator) -> None:
    text = await orchestrator.generate(text="abc")
    tokenized = await orchestrator.stub.Tokenize(pb.TokenizeRequest(text="abc"))
    prompt = pb.TokenPrompt(token_ids=tokenized.token_ids)
    assert (await orchestrator.generate(tokens=prompt)).token_ids == text.token_ids
    assert (await orchestrator.stub.Tokenize(pb.TokenizeRequest(tokens=prompt))).text == "abc"
    chat = pb.ChatPrompt(messages=[pb.ChatMessage(role="user", content="abc")])
    templated = await orchestrator.stub.Tokenize(pb.TokenizeRequest(chat=chat))
    assert templated.text == "<|start|>abc<|end|>"
    assert (await orchestrator.generate(chat=chat)).summary.usage.prompt_tokens == 5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": ""}, "the prompt is empty"),
        ({"tokens": pb.TokenPrompt(token_ids=[5] * MAX_CONTEXT_TOKENS)}, "it must leave room"),
        ({"tokens": pb.TokenPrompt(token_ids=[5, VOCAB_SIZE])}, "the vocabulary ends at 96"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"stop_token_ids": [VOCAB_SIZE]}, "stop_token_ids holds token id 97"),
        ({"logit_bias": [types_pb2.LogitBias(token_id=1000, bias=1)]}, "logit_bias holds token id 1000"),
        ({"logit_bias": [types_pb2.LogitBias(token_id=5, bias=1)] * 2}, "logit_bias holds a token twice"),
        ({"logit_bias": [types_pb2.LogitBias(token_id=5, bias=float("inf"))] * 9999}, "logit_bias is"),
        ({"logit_bias": [types_pb2.LogitBias(token_id=at, bias=1) for at in range(1025)]}, "holds 1025 tokens"),
        ({"stop_token_ids": [5] * 1025}, "stop_token_ids holds 1025 tokens"),
        ({"allowed_token_ids": [5] * 1025}, "allowed_token_ids holds 1025 tokens"),
        ({"allowed_token_ids": [5, VOCAB_SIZE]}, "allowed_token_ids holds token id 97"),
        ({"speculation": pb.SpeculationOptions(num_speculative_tokens=17)}, "num_speculative_tokens is 17"),
        ({"speculation": pb.SpeculationOptions(mode=9)}, "speculation mode 9 is unknown"),
        ({"speculation": pb.SpeculationOptions(acceptance=9)}, "AcceptanceMode 9 is unknown"),
        ({"text": "x" * 4_100_000}, "bytes; at most 4000000 are accepted"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_bad_input_is_refused_with_what_is_wrong(stack, orchestrator, fields, message) -> None:
    async with failing_with(grpc.StatusCode.INVALID_ARGUMENT, message):
        await orchestrator.generate(**fields)
    assert len((await orchestrator.generate()).token_ids) == 40
    await stack.nothing_is_left()


async def test_replicas_can_tell_clients_apart_and_not_who_they_are(
    stack, orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[OpenSequence] = []
    for engine in stack.engines:
        submit = engine.core.submit

        def record(command: Command, submit: Callable[[Command], None] = submit) -> None:
            opened.extend([command] if isinstance(command, OpenSequence) else [])
            submit(command)

        monkeypatch.setattr(engine.core, "submit", record)
    names: dict[str, set[str]] = {}
    for client_id in ("alice", "bob", "alice"):
        await orchestrator.generate(client_id=client_id)
        names.setdefault(client_id, set()).update(command.client for command in opened)
        opened.clear()
    assert [len(seen) for seen in names.values()] == [1, 1]
    assert names["alice"] != names["bob"]
    assert not any(client_id in name for client_id, seen in names.items() for name in seen)


async def test_the_model_is_described(orchestrator) -> None:
    info = await orchestrator.stub.GetModelInfo(pb.GetModelInfoRequest())
    assert (info.model.model_id, info.model.vocab_size) == ("emulated", VOCAB_SIZE)
    assert (info.num_target_replicas, info.num_draft_replicas) == (1, 1)
    assert list(info.proposers) == ["auto", "draft", "ngram", "suffix", "eagle3", "medusa", "early_exit"]
    assert info.limits.max_draft_tokens == 16
    assert info.version


async def test_a_drafter_with_another_tokenizer_is_skipped(stack) -> None:
    await stack.add("target")
    await stack.add("draft", tokenizer_fingerprint="another")
    answer = await (await stack.serve()).generate(speculation={"proposer": "draft"})
    assert "both need models with the same tokenizer" in answer.summary.speculation.reason


async def test_a_target_with_another_tokenizer_is_refused_with_a_reason(stack) -> None:
    await stack.add("target", tokenizer_fingerprint="another")
    orchestrator = await stack.serve(connect_timeout_s=0.05)
    async with failing_with(grpc.StatusCode.UNAVAILABLE, "both need models with the same tokenizer"):
        await orchestrator.generate()


async def test_without_a_target_requests_fail_and_health_says_so(stack) -> None:
    orchestrator = await stack.serve(connect_timeout_s=0.05)
    async with failing_with(grpc.StatusCode.UNAVAILABLE, "there is no target replica; waited 0.05 s"):
        await orchestrator.generate()
    health = health_pb2_grpc.HealthStub(orchestrator.channel)
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == not_serving
    watch = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE_NAME))
    assert (await watch.read()).status == not_serving
    target = await stack.add("target")
    assert (await watch.read()).status == serving
    await target.drain_and_stop(0)
    assert (await watch.read()).status == not_serving
    watch.cancel()


@pytest.mark.parametrize("mode", [OFF, ON])
@pytest.mark.parametrize("num_read", [0, 4])
async def test_a_cancelled_request_frees_everything(stack, mode, num_read) -> None:
    await stack.add("target", step_time_s=0.002)
    await stack.add("draft", step_time_s=0.002)
    call = (await stack.serve()).call(mode=mode, max_tokens=50_000)
    for _ in range(num_read):
        await anext(aiter(call))
    await until(lambda: stack.num_sequences() > 0)
    call.cancel()
    await stack.nothing_is_left()


async def test_a_deadline_of_the_client_frees_everything(stack) -> None:
    await stack.add("target", step_time_s=0.005)
    orchestrator = await stack.serve()
    async with failing_with(grpc.StatusCode.DEADLINE_EXCEEDED, ""):
        await orchestrator.generate(max_tokens=50_000, timeout=0.1)
    await stack.nothing_is_left()


async def test_a_deadline_of_the_client_holds_while_there_is_no_target(stack) -> None:
    orchestrator = await stack.serve(connect_timeout_s=60)
    async with failing_with(grpc.StatusCode.DEADLINE_EXCEEDED, ""):
        await orchestrator.generate(timeout=1)  # it is to have come to the server
    async with failing_with(grpc.StatusCode.DEADLINE_EXCEEDED, ""):
        await orchestrator.stub.GetModelInfo(pb.GetModelInfoRequest(), timeout=0.1)
    await stack.nothing_is_left()
    assert orchestrator.service.statistics.failures == {"deadline_exceeded": 1}


async def test_a_slow_reader_pauses_its_own_sequence_only(stack) -> None:
    await stack.add("target")
    (engine,) = stack.engines
    orchestrator = await stack.serve(slow_reader_tokens=64)
    # A small window that does not grow: else all of it is on the way when a busy machine makes few, large messages.
    options = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 4096))
    request = pb.GenerateRequest(text="abc", max_tokens=5_000, speculation=pb.SpeculationOptions(mode=OFF))
    async with grpc.aio.insecure_channel(orchestrator.server.address, options=options) as channel:
        idle_reader = inference_pb2_grpc.InferenceStub(channel).Generate(request)
        await until(lambda: engine.num_sequences == 1)
        # It falls idle, for longer than between two runs, with the answer unfinished.
        num_idle_looks = 0
        while num_idle_looks < 20:
            await asyncio.sleep(0.005)
            num_idle_looks = 0 if engine.core.has_work else num_idle_looks + 1
        assert engine.num_sequences == 1
        assert len((await orchestrator.generate(mode=OFF)).token_ids) == 40
        assert sum([len(message.chunk.token_ids) async for message in idle_reader]) == 5_000
    await stack.nothing_is_left()


async def test_draining_lets_running_requests_end_and_refuses_new_ones(stack, read) -> None:
    await stack.add("target", step_time_s=0.002)
    orchestrator = await stack.serve()
    call = orchestrator.call(max_tokens=100)
    first = await anext(aiter(call))
    stopping = asyncio.create_task(orchestrator.server.drain_and_stop(30))
    answer = await read(call)
    assert len(first.chunk.token_ids) + len(answer.token_ids) == answer.summary.usage.output_tokens == 100
    await stopping
    await orchestrator.server.wait_closed()
    with pytest.raises(grpc.aio.AioRpcError):
        await orchestrator.generate()


async def test_the_tokenizer_comes_from_the_target_where_the_model_is_not_known(stack) -> None:
    with pytest.raises(ModelError, match="no-such-model"):
        await OrchestratorServer.start(stack.config(model="no-such-model"), stack.directory)
    await stack.add("target", tokenizer_path="/nowhere")
    with pytest.raises(ModelError, match="/nowhere cannot be read either"):
        await OrchestratorServer.start(stack.config(model="no-such-model"), stack.directory)
    stack.directory.set_replicas("target", {})
    await stack.add("target", tokenizer_path=str(stack.folder))
    assert (await (await stack.serve(model="no-such-model")).generate()).text
