"""Corners of HTTP/1.1 that old clients and proxies come with (RFC 9112)."""

import pytest

from tests.support.raw_http import refuse, serving, stream

OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
POST = b"POST /v1 HTTP/1.1\r\nhost: h\r\n"
LAST = b"GET /last HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize("offer", [OFFER, b"Upgrade: websocket\r\nConnection: keep-alive\r\nConnection: upgrade\r\n"])
@pytest.mark.parametrize(
    "segments",
    [
        [b"content-length: 3\r\n\r\nabc"],
        [b"content-length: 3\r\n\r\n", b"abc"],
        [b"content-length: 3\r\n\r\na", b"b", b"c"],
        [b"content-", b"length: 3\r\n\r", b"\nabc"],
        [b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"],
        [b"transfer-encoding: chunked\r\n\r\n", b"3\r\nab", b"c\r\n0\r\n\r\n"],
        [b"expect: 100-continue\r\ncontent-length: 3\r\n\r\n", b"abc"],
    ],
)
async def test_an_offer_of_another_protocol_is_not_taken(offer: bytes, segments: list[bytes]) -> None:
    async with serving() as server:
        answer = await server.ask(POST + offer + segments[0], *segments[1:], POST + offer + b"\r\n" + LAST)
        assert "<POST /v1 of h: 3 bytes;" in answer
        assert "<POST /v1 of h: 0 bytes;" in answer
        assert "<GET /last" in answer
        assert answer.count("HTTP/1.1 200 ") == 3


async def test_an_offer_is_held_to_the_bounds_of_a_head() -> None:
    async with serving(max_header_bytes=4096) as server:
        answer = await server.ask(POST + OFFER + b"x: " + b"x" * 5000 + b"\r\n\r\n")
        assert answer.startswith("HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"GET http://proxied.example:81/v1/models?a=b", "<GET /v1/models?a=b of proxied.example:81:"),
        (b"GET HTTP://[::1]:81/v1", "<GET /v1 of [::1]:81:"),
        (b"GET http://proxied.example", "<GET / of proxied.example:"),
        (b"GET http://proxied.example?a=b", "<GET /?a=b of proxied.example:"),
        (b"OPTIONS *", "<OPTIONS / of h:"),
        (b"GET //v1", "<GET //v1 of h:"),
    ],
)
async def test_targets_of_every_form(line: bytes, told: str) -> None:
    async with serving() as server:
        answer = await server.ask(line + b" HTTP/1.1\r\nhost: h\r\n\r\n" + LAST)
        assert told in answer
        assert answer.count("HTTP/1.1 200 ") == 2


@pytest.mark.parametrize(
    ("request_bytes", "why"),
    [
        (b"CONNECT h:443 HTTP/1.1\r\nhost: h\r\n\r\n", "neither a path nor a URL"),
        (b"GET * HTTP/1.1\r\nhost: h\r\n\r\n", "neither a path nor a URL"),
        (b"GET ftp://h/x HTTP/1.1\r\nhost: h\r\n\r\n", "neither a path nor a URL"),
        (b"GET / HTTP/1.1\r\n\r\n", "0 headers `host`"),
        (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", "2 headers `host`"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "not HTTP/1.1"),
        (b"GET / HTTP/1.1\r\nhost: h\r\nx: a\r\n b\r\n\r\n", "whitespace after header value"),  # RFC 9112, 5.2
        (POST + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n", "Transfer-Encoding"),
        (POST + b"content-length: 3\r\ncontent-length: 4\r\n\r\n", "Content-Length"),
        (POST + b"content-length: -3\r\n\r\n", "Content-Length"),
        (POST + b"transfer-encoding: gzip, chunked\r\n\r\n", "other than `chunked`"),
        (POST + b"transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n", "other than `chunked`"),
    ],
)
async def test_what_could_be_understood_in_two_ways_is_refused_with_the_reason(request_bytes: bytes, why: str) -> None:
    async with serving() as server:
        answer = await server.ask(request_bytes + LAST)
        assert answer.startswith("HTTP/1.1 400 ")
        assert why in answer
        assert "HTTP/1.1 200 " not in answer


async def test_http_1_0_gets_no_chunks_and_no_100() -> None:
    async with serving(stream) as server:
        answer = await server.ask(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        assert "transfer-encoding" not in answer
        assert answer.endswith("\r\n\r\none two")
    async with serving() as server:
        answer = await server.ask(b"POST / HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n", b"abc")
        assert answer.startswith("HTTP/1.1 200 ")
        assert "of -: 3 bytes" in answer


async def test_who_waits_for_100_gets_it_or_the_refusal() -> None:
    head = POST + b"Expect: 100-Continue\r\ncontent-length: 3\r\n\r\n"
    async with serving() as server, server.connect() as connection:
        await connection.send(head)
        assert await connection.until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n"
        await connection.send(b"abc")
        assert "3 bytes" in await connection.until(">")
    async with serving(refuse) as server:
        assert (await server.ask(head)).startswith("HTTP/1.1 401 ")


async def test_space_around_a_header_is_not_of_its_value() -> None:
    async with serving() as server:
        answer = await server.ask(b"GET / HTTP/1.1\r\nhost: \t h \t \r\n\r\n" + LAST.replace(b"close", b"close \t"))
        assert answer.count(" of h:") == 2
    async with serving() as server, server.connect() as connection:
        await connection.send(POST + b"expect:100-continue \r\ncontent-length: 3 \r\n\r\n")
        assert await connection.until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n"


async def test_line_ends_around_requests_and_extensions_of_chunks_are_skipped() -> None:
    async with serving() as server:
        chunks = POST + b"transfer-encoding: Chunked\r\n\r\n3;a=b\r\nabc\r\n0;c\r\n\r\n\r\n"
        answer = await server.ask(b"\r\n\r\n" + POST + b"content-length: 1\r\n\r\nx\r\n" + chunks + LAST)
        assert answer.count("HTTP/1.1 200 ") == 3


async def test_head_has_no_body() -> None:
    async with serving() as server:
        answer = await server.ask(b"HEAD / HTTP/1.1\r\nhost: h\r\n\r\n" + LAST)
        assert answer.count("<") == 1
