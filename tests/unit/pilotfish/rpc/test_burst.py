"""Calls that come at once are all taken in: what is too much is for our own admission to say."""

import asyncio

import grpc.aio

from pilotfish.config import PublicSecurityConfig
from pilotfish.rpc.channel import CHANNEL_OPTIONS, public_server_options

NUM_CALLS = 1500
METHOD = "/test.Echo/Echo"


class Echo(grpc.GenericRpcHandler):
    def service(self, handler_call_details):  # type: ignore[no-untyped-def]
        async def echo(request: bytes, _context: object) -> bytes:
            return request

        return grpc.unary_unary_rpc_method_handler(echo) if handler_call_details.method == METHOD else None


async def test_a_burst_of_calls_is_taken_in() -> None:
    limits = PublicSecurityConfig(max_header_bytes=10_000)
    options = public_server_options(limits, max_message_bytes=1000, max_pending=NUM_CALLS)
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) as channel:
        call = channel.unary_unary(METHOD)

        async def answer(number: int) -> bytes:
            answered: bytes = await call(str(number).encode(), timeout=60)
            return answered

        answers = await asyncio.gather(*(answer(number) for number in range(NUM_CALLS)), return_exceptions=True)
    await server.stop(None)
    assert answers == [str(number).encode() for number in range(NUM_CALLS)]
