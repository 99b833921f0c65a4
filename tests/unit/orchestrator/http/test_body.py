import msgspec
import pytest
from starlette.requests import Request

from orchestrator.http.body import decode_body, read_body
from orchestrator.http.completions.chat_request import ChatCompletionRequest
from pilotfish.errors import InvalidRequestError, RequestTooLargeError

DECODER = msgspec.json.Decoder(ChatCompletionRequest)


def unbounded(num_bytes: int) -> None:
    """Any number of bytes may be held."""


def request(*pieces: bytes, **headers: str) -> Request:
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages.append({"type": "http.request", "body": b"", "more_body": False})
    scope = {"type": "http", "method": "POST", "headers": [(k.encode(), v.encode()) for k, v in headers.items()]}

    async def receive():
        return messages.pop(0)

    return Request(scope, receive)


async def test_a_body_in_pieces_is_read_up_to_the_limit() -> None:
    assert await read_body(request(b"ab", b"cd"), 4, unbounded) == b"abcd"
    with pytest.raises(RequestTooLargeError):
        await read_body(request(b"ab", b"cd", b"e"), 4, unbounded)


async def test_of_a_body_that_says_that_it_is_too_long_nothing_is_read() -> None:
    async def receive():
        pytest.fail("nothing is to be read")

    scope = {"type": "http", "method": "POST", "headers": [(b"content-length", b"5")]}
    with pytest.raises(RequestTooLargeError):
        await read_body(Request(scope, receive), 4, unbounded)


@pytest.mark.parametrize("coding", ["gzip", "br, gzip", "x" * 300])
async def test_a_compressed_body_is_refused_by_its_coding(coding: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"content coding '{coding[:64]}'"):
        await read_body(request(b"{}", **{"content-encoding": coding}), 4, unbounded)
    assert await read_body(request(**{"content-encoding": coding}), 4, unbounded) == b""
    for none in ("", "identity", " Identity"):
        assert await read_body(request(b"{}", **{"content-encoding": none}), 4, unbounded) == b"{}"


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_a_byte_order_mark_is_skipped(kind: type) -> None:
    body = kind('\ufeff{"messages": []}'.encode())
    assert decode_body(DECODER, body).messages == []


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (b"{}", "messages", "you must provide the parameter messages"),
        (b'{"messages": [], "temperature": "1"}', "temperature", "temperature: expected `float | null`, got `str`"),
        (b'{"messages": [{"content": "x"}]}', "messages[0].role", "you must provide the parameter messages[0].role"),
        (b'{"messages": [{"role": "user", "content": 1}]}', "messages[0].content", "expected `str | array | null`"),
        (b'{"messages": [], "logit_bias": {"x": 1}}', "logit_bias", "logit_bias: expected `int`, got `str`"),
        (b'{"messages": [{"role": "USER"}]}', "messages[0].role", "'USER'; known are assistant, developer, system, "),
        (b'{"messages": [], "speculation": {"mode": "x"}}', "speculation.mode", "'x'; known are auto, off, on"),
        (b"[]", None, "got `array`"),
        (b"{", None, "the body is not JSON"),
        (b"", None, "the body is not JSON"),
    ],
)
def test_what_is_wrong_is_named(body: bytes, param: str | None, message: str) -> None:
    with pytest.raises(InvalidRequestError) as failure:
        decode_body(DECODER, body)
    assert failure.value.param == param
    assert message in str(failure.value)
