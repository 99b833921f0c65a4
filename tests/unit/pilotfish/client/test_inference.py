"""The blocking client against a running Pilotfish over emulated engines."""

from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest

from pilotfish.chat import ChatMessage
from pilotfish.client.answer import Chunk, GenerateOptions, Prompt, TokenPrompt
from pilotfish.client.inference import InferenceClient
from pilotfish.errors import UnavailableError
from pilotfish.rpc.conversion import grammar_from_proto
from pilotfish.rpc.v1 import inference_pb2, inference_pb2_grpc, types_pb2
from pilotfish.types import Grammar, GrammarKind, TokenLogprobs

CHAT: Prompt = (ChatMessage("user", "abcabcabc"),)


class Canned(inference_pb2_grpc.InferenceServicer):
    """Answers with one chunk, whatever is asked."""

    def __init__(self) -> None:
        self.requests: list[inference_pb2.GenerateRequest] = []

    def Generate(self, request, context) -> Iterator[inference_pb2.GenerateResponse]:  # noqa: N802
        self.requests.append(request)
        logprobs = types_pb2.TokenLogprobs(logprob=-0.5, top_token_ids=[7, 8], top_logprobs=[-0.5, -1.0])
        yield inference_pb2.GenerateResponse(
            chunk=inference_pb2.Chunk(text="y", token_ids=[7], origins=[1], logprobs=[logprobs])
        )


def chunks(address: str, prompt: Prompt, options: GenerateOptions) -> list[Chunk]:
    with InferenceClient(address) as client:
        answer = client.generate(prompt, options, timeout_s=60)
        return [message for message in answer if isinstance(message, Chunk)]


def test_tokens_stand_for_the_prompt_they_came_from(address: str) -> None:
    options = GenerateOptions(max_tokens=12, temperature=0)
    with InferenceClient(address) as client:
        token_ids = client.tokenize(CHAT)
        assert client.detokenize(token_ids) == "<|start|>user: abcabcabc\n"
    from_chat, from_tokens = chunks(address, CHAT, options), chunks(address, TokenPrompt(token_ids), options)
    assert "".join(chunk.text for chunk in from_tokens) == "".join(chunk.text for chunk in from_chat) != ""


def test_log_probabilities_come_when_asked_for() -> None:
    canned = Canned()
    server = grpc.server(futures.ThreadPoolExecutor(1))
    inference_pb2_grpc.add_InferenceServicer_to_server(canned, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    grammar = Grammar(GrammarKind.REGEX, "y+")
    (chunk,) = chunks(f"127.0.0.1:{port}", "x", GenerateOptions(logprobs=1, ignore_eos=True, grammar=grammar))
    server.stop(0).wait()
    assert chunk.logprobs == (TokenLogprobs(-0.5, (7, 8), (-0.5, -1.0)),)
    assert canned.requests[0].logprobs == 1
    assert canned.requests[0].ignore_eos
    assert grammar_from_proto(canned.requests[0].grammar) == grammar


def test_nobody_there_is_said_with_what_to_do() -> None:
    with (
        pytest.raises(UnavailableError, match=r"nothing answers at 127.0.0.1:1: start it with `pilotfish up`"),
        InferenceClient("127.0.0.1:1", connect_timeout_s=0.2),
    ):
        pytest.fail("it must not connect")
