"""A listening server's certificate follows its files, on both event loops."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import trustme
import uvloop

from pilotfish.security.certificates import CertificateFiles, CertificateSource, ReloadingContext

Issue = Callable[..., CertificateFiles]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    writer.close()


async def talks(port: int, authority: trustme.CA, certificate: trustme.LeafCert | None = None) -> bool:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(b"hello\n")
        line = await reader.readline()
        writer.close()
    except (ssl.SSLError, ConnectionError):
        return False
    return line == b"hello\n"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_the_next_connection_gets_the_new_certificate(run: Callable[[Coroutine[Any, Any, None]], None], issue: Issue):
    async def check() -> None:
        first, second = trustme.CA(), trustme.CA()
        source = CertificateSource(issue(first, ca=False))
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=ReloadingContext.of(source))
        async with server:
            port = server.sockets[0].getsockname()[1]
            assert await talks(port, first)
            assert not await talks(port, second)
            issue(second, ca=False)
            assert await talks(port, second)
            assert not await talks(port, first)

    run(check())


async def test_clients_need_a_certificate_where_there_is_an_authority(issue: Issue) -> None:
    ours = trustme.CA()
    source = CertificateSource(issue(ours))
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=ReloadingContext.of(source))
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await talks(port, ours, ours.issue_cert("client"))
        assert not await talks(port, ours)
        assert not await talks(port, ours, trustme.CA().issue_cert("client"))
