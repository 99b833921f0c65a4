"""Who is served on the internal links: only those that the replica knows, each over TLS, token or both."""

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trustme

from pilotfish.config import InternalSecurityConfig
from pilotfish.emulation.engine import EmulatedEngine
from pilotfish.errors import AuthenticationError, ConfigError, PilotfishError, UnavailableError
from pilotfish.messages import OpenSequence
from pilotfish.rpc.link_security import OPEN_LINKS, LinkSecurity
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.target_frames import TargetFrames
from pilotfish.types import SamplingParams
from tests.support.peer import RecordingPeer

Serve = Callable[[InternalSecurityConfig], AbstractAsyncContextManager[str]]


@pytest.fixture
def serve() -> Serve:
    """A replica with this security; gives its address."""

    @asynccontextmanager
    async def start(config: InternalSecurityConfig) -> AsyncIterator[str]:
        server = await ReplicaServer.start(
            TargetFrames(),
            EmulatedEngine(),
            host="127.0.0.1",
            port=0,
            port_setting="target.port",
            security=LinkSecurity(config),
        )
        try:
            yield server.address
        finally:
            await server.drain_and_stop(0)

    return start


def certificates(folder: Path, authority: trustme.CA, *names: str) -> InternalSecurityConfig:
    folder.mkdir(exist_ok=True)
    certificate = authority.issue_cert(*names)
    (folder / "chain.pem").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    (folder / "key.pem").write_bytes(certificate.private_key_pem.bytes())
    (folder / "ca.pem").write_bytes(authority.cert_pem.bytes())
    return InternalSecurityConfig(
        certificate=str(folder / "chain.pem"), private_key=str(folder / "key.pem"), ca=str(folder / "ca.pem")
    )


def token(path: Path, value: str) -> InternalSecurityConfig:
    path.write_text(value)
    return InternalSecurityConfig(token_file=str(path))


async def is_served(address: str, security: LinkSecurity) -> bool:
    async with RecordingPeer(address, "target", security=security) as peer:
        event = await peer.ask(OpenSequence(1, (1, 2), SamplingParams()))
    return type(event).__name__ == "Opened"


async def test_a_token_opens_the_link_and_nothing_else_does(serve: Serve, tmp_path: Path) -> None:
    ours = token(tmp_path / "ours", "a" * 32)
    async with serve(ours) as address:
        assert await is_served(address, LinkSecurity(ours))
        for stranger in (OPEN_LINKS, LinkSecurity(token(tmp_path / "theirs", "b" * 32))):
            with pytest.raises(AuthenticationError, match=r"the same security\.internal\.token_file"):
                await is_served(address, stranger)


async def test_mutual_tls_serves_only_certificates_of_our_authority(serve: Serve, tmp_path: Path) -> None:
    authority = trustme.CA()
    server = certificates(tmp_path / "server", authority, "127.0.0.1")
    client = certificates(tmp_path / "client", authority, "orchestrator")
    foreign = certificates(tmp_path / "foreign", trustme.CA(), "127.0.0.1")
    async with serve(server) as address:
        assert await is_served(address, LinkSecurity(client))
        for stranger in (OPEN_LINKS, LinkSecurity(foreign), LinkSecurity(dataclasses.replace(foreign, ca=server.ca))):
            with pytest.raises(PilotfishError):
                await is_served(address, stranger)


async def test_a_replica_with_another_name_is_not_trusted(serve: Serve, tmp_path: Path) -> None:
    authority = trustme.CA()
    server = certificates(tmp_path / "server", authority, "replica.pilotfish")
    async with serve(server) as address:
        with pytest.raises(UnavailableError):
            await is_served(address, LinkSecurity(server))
        named = dataclasses.replace(server, server_name="replica.pilotfish")
        assert await is_served(address, LinkSecurity(named))


async def test_replaced_certificates_hold_for_the_next_connection(serve: Serve, tmp_path: Path) -> None:
    before = certificates(tmp_path / "before", trustme.CA(), "127.0.0.1")
    async with serve(before) as address:
        old_dialler = LinkSecurity(before)
        async with RecordingPeer(address, "target", security=old_dialler) as open_peer:
            kept = LinkSecurity(certificates(tmp_path / "kept", trustme.CA(), "127.0.0.1"))
            with pytest.raises(PilotfishError):
                await is_served(address, kept)
            after = trustme.CA()
            certificates(tmp_path / "before", after, "127.0.0.1")
            assert await is_served(address, LinkSecurity(certificates(tmp_path / "new", after, "orchestrator")))
            assert await is_served(address, old_dialler)
            # An open link lives on.
            assert type(await open_peer.ask(OpenSequence(9, (1, 2), SamplingParams()))).__name__ == "Opened"


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.7", "[::]", "replica.example"])
def test_a_host_that_strangers_reach_needs_security(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"target\.host is .*security\.internal\.token_file"):
        OPEN_LINKS.check_host(host, "target.host")
    LinkSecurity(InternalSecurityConfig(allow_unauthenticated=True)).check_host(host, "target.host")
    LinkSecurity(token(tmp_path / "token", "a" * 32)).check_host(host, "target.host")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.8.9.1"])
def test_the_loopback_interface_needs_none(host: str) -> None:
    OPEN_LINKS.check_host(host, "target.host")
