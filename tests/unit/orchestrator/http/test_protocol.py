"""Connections that send too much beside a body, too slowly, or are too many."""

import asyncio

import pytest

from tests.support.raw_http import refuse, serving, stream

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("end", [b"\r\n", b""])
async def test_a_large_header_is_refused_complete_or_not(end: bytes) -> None:
    async with serving(max_header_bytes=4096) as server:
        lines = [b"x-%d: %s\r\n" % (number, b"x" * 90) for number in range(60)]
        answer = await server.ask(GET[:-2] + b"".join(lines) + end)
        assert answer.startswith("HTTP/1.1 400 ")
        assert '"type":"invalid_request_error"' in answer


async def test_a_large_header_is_refused_in_small_pieces() -> None:
    async with serving(max_header_bytes=4096) as server:
        assert (await server.ask(GET[:-2] + b"x: ", *[b"x" * 64] * 80)).startswith("HTTP/1.1 400 ")


async def test_a_head_of_very_many_headers_is_refused() -> None:
    async with serving() as server:
        assert "more than 128 headers" in await server.ask(GET[:-2] + b"a:\r\n" * 200 + b"\r\n")


async def test_requests_are_answered_one_after_the_other_and_bodies_do_not_count() -> None:
    async with serving(max_header_bytes=4096) as server, server.connect() as connection:
        for _ in range(3):
            await connection.send(POST + b"content-length: 9000\r\n\r\n" + b"x" * 9000)
            assert "9000 bytes" in await connection.until(">")


async def test_a_body_and_the_next_head_in_one_segment() -> None:
    async with serving(max_header_bytes=4096) as server:
        answer = await server.ask(POST + b"content-length: 90000\r\n\r\n" + b"x" * 90000 + LAST[:40], LAST[40:])
        assert answer.count("HTTP/1.1 200 ") == 2


async def test_trailers_are_dropped() -> None:
    async with serving() as server:
        for segments in (
            [b"1\r\nx\r\n0\r\nx-client-id: forged\r\n\r\n"],
            [b"1\r\nx\r\n0\r\nx-client", b"-id: forged\r\n\r\n"],
        ):
            answer = await server.ask(CHUNKED + segments[0], *segments[1:], LAST)
            assert "1 bytes; host transfer-encoding>" in answer
            assert answer.count("HTTP/1.1 200 ") == 2


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(b"0\r\n" + b"a: b\r\n" * 200, id="trailers"),
        pytest.param(b"0\r\n" + b"a: %b\r\n" % (b"b" * 100) * 60, id="long trailers"),
        pytest.param(b"0\r\n" + b"a" * 20000, id="one trailer"),
        pytest.param(b"1;a=" + b"b" * 20000, id="one extension"),
        pytest.param(b"1;a=%b\r\nx\r\n" % (b"b" * 1000) * 20, id="extensions"),
        pytest.param(b"1\r\nx\r\n" * 5000, id="tiny chunks"),
        pytest.param(b"0" * 20000, id="a size of zeros"),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_what_chunks_have_beside_the_body_is_bounded(flood: bytes, at_once: bool) -> None:
    async with serving(max_header_bytes=4096) as server:
        size = len(flood) if at_once else 999
        pieces = [flood[start : start + size] for start in range(0, len(flood), size)]
        answer = await server.ask(CHUNKED, *pieces)
        assert answer.startswith("HTTP/1.1 400 ")


async def test_trailers_are_bounded_after_a_refusal_as_well() -> None:
    async with serving(refuse) as server:
        answer = await server.ask(CHUNKED, b"1\r\nx\r\n0\r\n" + b"a: b\r\n" * 5000, GET)
        assert answer.count("HTTP/1.1") == 1
        assert "401 Unauthorized" in answer


async def test_small_chunks_are_a_body() -> None:
    async with serving(max_header_bytes=4096) as server:
        answer = await server.ask(CHUNKED + b"A\r\n1234567890\r\n" * 4000 + b"0\r\n\r\n" + LAST)
        assert "40000 bytes" in answer


async def test_line_ends_between_requests_are_no_request_and_no_end_of_patience() -> None:
    async with serving(max_header_bytes=4096) as server:
        answer = await server.ask(b"\r\n" * 5000)
        assert "HTTP/1.1 200" not in answer


async def test_an_answer_before_the_end_of_its_request_ends_the_connection_and_arrives() -> None:
    async with serving(refuse) as server:
        rest = [b"x" * 65536] * 15
        answer = await server.ask(POST + b"content-length: 1000000\r\n\r\n", *rest, GET)
        assert answer.count("HTTP/1.1") == 1
        assert "connection: close\r\n" in answer
        assert answer.endswith("\r\n\r\nno")
        # With all of the request read, nothing is lost.
        assert (await server.ask(POST + b"content-length: 1\r\n\r\nx" + LAST)).count("HTTP/1.1 401 ") == 2


async def test_requests_sent_ahead_wait_their_turn() -> None:
    async with serving() as server:
        answer = await server.ask(GET * 5 + POST + b"content-length: 100000\r\n\r\n" + b"x" * 100_000 + LAST)
        assert answer.count("HTTP/1.1 200 ") == 7
        assert "100000 bytes" in answer
        assert "/last" in answer


async def test_of_very_many_requests_sent_ahead_the_first_are_answered() -> None:
    async with serving() as server:
        answer = await server.ask(GET * 2000)
        assert 10 < answer.count("HTTP/1.1 200 ") < 100
        assert "HTTP/1.1 400 " not in answer


@pytest.mark.parametrize("bad", [b"NONSENSE\r\n\r\n", CHUNKED + b"z\r\n"])
async def test_nonsense_after_a_request_does_not_spoil_its_answer(bad: bytes) -> None:
    async with serving(stream) as server:
        answer = await server.ask(GET + GET + bad + GET)
        assert answer.count("HTTP/1.1 200 ") == 2
        assert answer.endswith("0\r\n\r\n")


@pytest.mark.parametrize(
    "begin",
    [b"", b"\r\n", b"GET / HT", GET[:-2], POST + b"content-length: 9\r\n\r\n123", CHUNKED + b"1\r\nx\r\n"],
)
async def test_an_unfinished_request_is_given_up(begin: bytes) -> None:
    async with serving(request_read_timeout_s=0.05) as server:
        assert await server.ask(begin) == ""


async def test_a_client_that_takes_nothing_of_its_answer_is_disconnected() -> None:
    left = asyncio.Event()

    async def flood(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            left.set()

        watching = asyncio.create_task(watch())
        while not left.is_set():
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        await watching

    async with serving(flood, response_write_timeout_s=0.3) as server, server.connect() as connection:
        await connection.send(GET)
        await left.wait()


async def test_one_connection_too_many_takes_the_place_of_the_one_that_has_idled_longest() -> None:
    async with serving(max_connections=2) as server, server.connect() as first, server.connect() as second:
        await first.send(GET)
        await first.until(">")
        await second.send(GET)
        await second.until(">")
        await first.send(GET)
        await first.until(">")
        async with server.connect() as third:
            await third.send(GET)
            await third.until(">")
            assert await second.until_closed() == ""
            await first.send(GET)
            await first.until(">")


async def test_connections_that_are_owed_an_answer_stay_and_more_are_closed() -> None:
    may_answer, asked = asyncio.Event(), asyncio.Event()

    async def wait(scope, receive, send) -> None:
        asked.set()
        await may_answer.wait()
        await refuse(scope, receive, send)

    async with serving(wait, max_connections=1) as server, server.connect() as first:
        await first.send(GET)
        await asked.wait()
        assert await server.ask(GET) == ""
        may_answer.set()
        await first.until("no")
