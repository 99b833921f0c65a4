"""A stack as strangers meet it: TLS, keys and limits over gRPC and HTTP, and internal links of its own."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx
import pytest
import trustme

from orchestrator.server import SERVICE_NAME, OrchestratorServer
from pilotfish.client.access import Access
from pilotfish.client.answer import GenerateOptions
from pilotfish.client.async_inference import AsyncInferenceClient
from pilotfish.config import config_from_dict
from pilotfish.errors import AuthenticationError, PilotfishError, ResourceExhaustedError, UnavailableError
from pilotfish.security.api_key import ApiKey, KeyLimits, digest_of
from pilotfish.security.api_key_file import write_keys
from pilotfish.security.link_token import write_new_token
from tests.support.stack import running_stack
from tests.support.until import until

Start = Callable[[dict[str, Any]], AbstractAsyncContextManager[OrchestratorServer]]
OPTIONS = GenerateOptions(max_tokens=4)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """An emulated target and an orchestrator with this `security` section."""

    @asynccontextmanager
    async def run(security: dict[str, Any]) -> AsyncIterator[OrchestratorServer]:
        config = config_from_dict(
            {
                "emulation": {"profile": "instant"},
                "cache_dir": str(tmp_path / "cache"),
                "security": security,
                "orchestrator": {"connect_timeout_s": 2},
            }
        )
        async with running_stack(config, with_draft=False) as stack:
            yield stack.orchestrator

    return run


async def ask(server: OrchestratorServer, access: Access, prompt: str = "Hello") -> int:
    """The tokens of an answer."""
    async with AsyncInferenceClient(server.address, access=access, connect_timeout_s=2) as client:
        return (await client.follow(prompt, OPTIONS, timeout_s=20, on_tokens=lambda _: None)).num_output_tokens


def keys(path: Path, *names: str, **limits: int) -> dict[str, str]:
    write_keys(path, [ApiKey(name=name, sha256=digest_of(f"pf-{name}"), limits=KeyLimits(**limits)) for name in names])
    return {"api_keys_file": str(path)}


def certificate(folder: Path, authority: trustme.CA) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    issued = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "chain.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    return {"certificate": str(folder / "chain.pem"), "private_key": str(folder / "key.pem")}


async def test_keys_and_tls_over_grpc_and_http(start: Start, tmp_path: Path) -> None:
    public = certificate(tmp_path / "public", trustme.CA()) | keys(tmp_path / "keys", "ann")
    ca_file = str(tmp_path / "public" / "ca.pem")
    async with start({"public": public}) as server:
        assert server.http_url.startswith("https://")
        assert await ask(server, Access(api_key="pf-ann", ca_file=ca_file)) == 4
        with pytest.raises(AuthenticationError, match="an API key is needed"):
            await ask(server, Access(ca_file=ca_file))
        with pytest.raises(AuthenticationError, match="not known"):
            await ask(server, Access(api_key="pf-bob", ca_file=ca_file))
        with pytest.raises(UnavailableError, match="PILOTFISH_CA_FILE"):
            await ask(server, Access(api_key="pf-ann"))
        async with httpx.AsyncClient(base_url=server.http_url, verify=_trust(ca_file)) as http:
            refusal = await http.get("/v1/models", headers={"x-request-id": "mine"})
            assert (refusal.status_code, refusal.headers["x-request-id"]) == (401, "mine")
            assert (await http.get("/health/")).status_code == 200
            answer = await http.get("/v1/models", headers={"authorization": "Bearer pf-ann"})
            assert answer.status_code == 200


async def test_clients_may_need_certificates(start: Start, tmp_path: Path) -> None:
    authority = trustme.CA()
    public = certificate(tmp_path / "public", authority) | {"client_ca": str(tmp_path / "public" / "ca.pem")}
    ca_file = public["client_ca"]
    async with start({"public": public}) as server:
        own = Access(ca_file=ca_file, certificate_file=public["certificate"], key_file=public["private_key"])
        assert await ask(server, own) == 4
        with pytest.raises(UnavailableError):
            await ask(server, Access(ca_file=ca_file))


async def test_a_replaced_certificate_and_a_revoked_key_count_without_a_restart(start: Start, tmp_path: Path) -> None:
    folder, second = tmp_path / "public", trustme.CA()
    public = certificate(folder, trustme.CA()) | keys(tmp_path / "keys", "ann", "bob")
    async with start({"public": public}) as server:
        assert await ask(server, Access(api_key="pf-bob", ca_file=str(folder / "ca.pem"))) == 4
        certificate(folder, second)
        keys(tmp_path / "keys", "ann")
        access = Access(api_key="pf-ann", ca_file=str(folder / "ca.pem"))
        assert await ask(server, access) == 4
        async with httpx.AsyncClient(base_url=server.http_url, verify=_trust(access.ca_file)) as http:
            assert (await http.get("/health")).status_code == 200
        with pytest.raises(AuthenticationError):
            await ask(server, Access(api_key="pf-bob", ca_file=access.ca_file))


async def test_a_keys_limits_hold_over_both_protocols(start: Start, tmp_path: Path) -> None:
    public = keys(tmp_path / "keys", "ann", "bob", requests_per_min=2)
    async with start({"public": public}) as server:
        assert await ask(server, Access(api_key="pf-ann")) == 4
        body = {"model": "", "prompt": "Hello", "max_tokens": 4}
        async with httpx.AsyncClient(base_url=server.http_url) as http:
            model = (await http.get("/v1/models", headers={"authorization": "Bearer pf-ann"})).json()["data"][0]["id"]
            body["model"] = model
            answer = await http.post("/v1/completions", json=body, headers={"authorization": "Bearer pf-ann"})
            assert answer.status_code == 200
            answer = await http.post("/v1/completions", json=body, headers={"authorization": "Bearer pf-ann"})
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) > 0
            assert answer.headers["x-request-id"]
        with pytest.raises(ResourceExhaustedError, match="2 requests a minute") as refusal:
            await ask(server, Access(api_key="pf-ann"))
        assert refusal.value.retry_after_s is not None
        assert await ask(server, Access(api_key="pf-bob")) == 4


async def test_tokens_of_prompt_and_answer_count(start: Start, tmp_path: Path) -> None:
    path, access = tmp_path / "keys", Access(api_key="pf-ann")
    async with start({"public": keys(path, "ann")}) as server:
        async with AsyncInferenceClient(server.address, access=access) as client:
            summary = await client.follow("Hello there", OPTIONS, timeout_s=20, on_tokens=lambda _: None)
        # Enough for the prompt, and for half of the answer.
        limit = summary.num_prompt_tokens + 2
        assert summary.num_prompt_tokens > 3
        keys(path, "ann", tokens_per_min=limit)
        assert await ask(server, access, "Hello there") == 4
        with pytest.raises(ResourceExhaustedError, match=f"{limit} tokens a minute"):
            await ask(server, access, "Hello there")


async def test_internal_links_with_a_token_and_a_stranger_between(start: Start, tmp_path: Path) -> None:
    write_new_token(tmp_path / "token")
    async with start({"internal": {"token_file": str(tmp_path / "token")}}) as server:
        assert await ask(server, Access()) == 4
        write_new_token(tmp_path / "other")
        sections = {
            "emulation": {"profile": "instant"},
            "cache_dir": str(tmp_path / "cache"),
            "orchestrator": {
                "port": 0,
                "target_addresses": [link.address for link in server.service.targets.links],
                "connect_timeout_s": 0.5,
            },
        }
        for internal in ({}, {"token_file": str(tmp_path / "other")}):
            config = config_from_dict({**sections, "security": {"internal": internal}})
            stranger = await OrchestratorServer.start(config)
            try:
                targets = stranger.service.targets
                await until(lambda targets=targets: "token_file" in targets.absence_reason)
                with pytest.raises(UnavailableError, match=r"security\.internal\.token_file"):
                    await ask(stranger, Access())
            finally:
                await stranger.drain_and_stop(0)


async def test_a_request_of_too_many_bytes_is_refused_and_the_server_goes_on(start: Start) -> None:
    async with start({}) as server:
        with pytest.raises(PilotfishError):
            await ask(server, Access(), "x" * (8_000_000 + 4_000))
        with pytest.raises(PilotfishError):
            await ask(server, Access(api_key="k" * 100_000))
        assert await ask(server, Access()) == 4


async def test_no_prompt_and_no_key_shows_in_any_log(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with start({"public": keys(tmp_path / "keys", "ann")}) as server:
            await ask(server, Access(api_key="pf-ann"), "the-canary-sings")
            with pytest.raises(AuthenticationError):
                await ask(server, Access(api_key="pf-canary"), "the-canary-sings")
            async with httpx.AsyncClient(base_url=server.http_url) as http:
                for body in ('{"prompt": "the-canary-sings", "max_tokens": "many"}', "the-canary-sings"):
                    headers = {"authorization": "Bearer pf-ann"}
                    assert (await http.post("/v1/completions", content=body, headers=headers)).status_code == 400
    ours = [record.getMessage() for record in caplog.records]
    assert ours
    assert not any("canary" in line or "pf-ann" in line for line in ours)


def _trust(ca_file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)


async def test_probes_are_answered_whatever_the_api_is_at(tmp_path: Path) -> None:
    files = certificate(tmp_path / "public", trustme.CA())
    sections = {"public": files | {"max_connections": 1}}
    config = config_from_dict(
        {
            "emulation": {"profile": "instant"},
            "cache_dir": str(tmp_path / "cache"),
            "security": sections,
            "orchestrator": {"http": {"probe_port": 0}},
        }
    )
    async with running_stack(config, with_draft=False) as stack, httpx.AsyncClient() as probe:
        url = stack.orchestrator.probe_url
        assert url.startswith("http://"), "the kubelet has no certificate"
        for path in ("/health", "/ready"):
            assert (await probe.get(url + path, headers={"host": "10.1.2.3"})).status_code == 200
        for path in ("/v1/models", "/metrics", "/"):
            assert (await probe.get(url + path)).status_code == 404


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/models", "/metrics"])
async def test_a_get_takes_no_large_body(start: Start, path: str) -> None:
    async with start({}) as server, httpx.AsyncClient(base_url=server.http_url) as http:
        answer = await http.request("GET", path, content=b"x" * 1_000_000)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
        for body in (b"", b"x"):
            assert (await http.request("GET", path, content=body)).status_code == 200


GENERATE = f"/{SERVICE_NAME}/Generate"


async def test_without_a_key_no_message_is_taken(start: Start, tmp_path: Path) -> None:
    async with (
        start({"public": keys(tmp_path / "keys", "ann")}) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        # A client that never comes to send its message, and one that never ends it.
        for method in ("Generate", "Tokenize", "GetModelInfo"):
            call = channel.stream_stream(f"/{SERVICE_NAME}/{method}")()
            assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
        call = channel.stream_stream(GENERATE)(metadata=[("authorization", "Bearer pf-bob")])
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_message_has_to_come_in_time(start: Start) -> None:
    async with (
        start({"public": {"request_read_timeout_s": 0.05}}) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        call = channel.stream_stream(GENERATE)()
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "security.public.request_read_timeout_s" in await call.details()


async def test_a_call_without_a_message_is_refused(start: Start) -> None:
    async with start({}) as server, grpc.aio.insecure_channel(server.address) as channel:
        call = channel.stream_stream(GENERATE)(iter(()))
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_message_that_is_none_is_the_callers_fault(start: Start) -> None:
    async with start({}) as server, grpc.aio.insecure_channel(server.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await channel.unary_unary(GENERATE)(b"\xff\xff", timeout=20)
        assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_grpc_connections_are_bounded(start: Start) -> None:
    async with (
        start({"public": {"max_connections": 1}}) as server,
        AsyncInferenceClient(server.address, access=Access(), connect_timeout_s=2) as client,
    ):
        assert (await client.follow("Hello", OPTIONS, timeout_s=20, on_tokens=lambda _: None)).num_output_tokens == 4
        host, _, port = server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.read() == b""
        writer.close()
        assert (await client.follow("Hello", OPTIONS, timeout_s=20, on_tokens=lambda _: None)).num_output_tokens == 4


async def test_calls_of_a_grpc_connection_are_bounded_and_the_others_wait(start: Start) -> None:
    async with (
        start({"public": {"grpc_max_streams": 1}}) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        first = channel.stream_stream(GENERATE)()
        await first.wait_for_connection()
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await health(b"", timeout=0.2)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        first.cancel()
        await health(b"", timeout=20)
