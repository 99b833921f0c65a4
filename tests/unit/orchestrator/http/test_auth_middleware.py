"""Who gets past the door of the HTTP API."""

from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from orchestrator.api_security import Authenticator
from orchestrator.http.auth_middleware import AuthMiddleware, allowance_of
from pilotfish.config import PublicSecurityConfig
from pilotfish.security.api_key import ApiKey, digest_of
from pilotfish.security.api_key_file import write_keys


async def inner(scope, receive, send) -> None:
    allowance = allowance_of(Request(scope).scope)
    await PlainTextResponse("-" if allowance is None else allowance.key.name)(scope, receive, send)


def client(
    config: PublicSecurityConfig, *, hosts: tuple[str, ...] = (), cors: tuple[str, ...] = ()
) -> httpx.AsyncClient:
    app = AuthMiddleware(inner, Authenticator(config), hosts=hosts, cors_origins=cors)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8000")


@pytest.fixture
def keys(tmp_path: Path) -> PublicSecurityConfig:
    write_keys(tmp_path / "keys", [ApiKey(name="ann", sha256=digest_of("pf-1"))])
    return PublicSecurityConfig(api_keys_file=str(tmp_path / "keys"))


async def test_a_key_opens_everything_and_no_key_almost_nothing(keys: PublicSecurityConfig) -> None:
    async with client(keys) as http:
        answer = await http.get("/v1/models", headers={"authorization": "Bearer pf-1"})
        assert (answer.status_code, answer.text) == (200, "ann")
        for path in ("/v1/models", "/metrics", "/fleet", "/tokenize", "/openapi.json", "/version", "/playground", "/x"):
            for headers in ({}, {"authorization": "Bearer pf-2"}, {"authorization": "pf-1"}, {"x-api-key": "pf-1"}):
                answer = await http.get(path, headers=headers)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
                assert answer.json()["error"]["code"] == "invalid_api_key"
                assert "pf-" not in answer.text
        for path in ("/", "/health", "/ready", "/playground/main.js"):
            assert (await http.get(path)).status_code == 200


async def test_a_page_of_another_site_may_not_use_an_api_without_keys() -> None:
    async with client(PublicSecurityConfig()) as http:
        assert (await http.post("/v1/completions")).status_code == 200
        for origin in ("http://127.0.0.1:8000", "https://127.0.0.1:8000"):
            assert (await http.post("/v1/completions", headers={"origin": origin})).status_code == 200
        for origin in ("https://evil.example", "http://127.0.0.1:9000", "null"):
            answer = await http.post("/v1/completions", headers={"origin": origin})
            assert answer.status_code == 403
            assert answer.json()["error"]["code"] == "origin_not_allowed"


async def test_allowed_origins_are_allowed() -> None:
    for cors in (("https://chat.example",), ("*",)):
        async with client(PublicSecurityConfig(), cors=cors) as http:
            headers = {"origin": "https://chat.example"}
            assert (await http.post("/v1/completions", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("hosts", "name", "status"),
    [
        ((), "evil.example:8000", 403),
        ((), "127.0.0.1.evil.example", 403),
        ((), "localhost.evil.example", 403),
        ((), "evil", 403),
        ((), "[bad", 403),
        ((), "10.0.0.8:8000", 200),  # nobody can make a page of this site come from elsewhere
        ((), "localhost:8000", 200),
        ((), "LocalHost.", 200),
        ((), "127.0.0.1:8000", 200),
        ((), "[::1]:8000", 200),
        ((), "", 200),  # no browser
        (("0.0.0.0",), "models.example", 403),
        (("models.example",), "Models.Example:8000", 200),
        (("models.example",), "a.models.example", 403),
        (("*.models.example",), "a.models.example", 200),
        (("*.models.example",), "models.example", 403),
        (("*.models.example",), "evilmodels.example", 403),
        (("*",), "models.example", 200),
    ],
)
async def test_without_keys_a_server_goes_by_its_own_names(hosts: tuple[str, ...], name: str, status: int) -> None:
    async with client(PublicSecurityConfig(), hosts=hosts) as http:
        answer = await http.get("/v1/models", headers={"host": name})
        assert answer.status_code == status
        if status == 403:
            assert "orchestrator.http.allowed_hosts" in answer.json()["error"]["message"]


async def test_with_keys_a_server_goes_by_any_name(keys: PublicSecurityConfig) -> None:
    async with client(keys) as http:
        headers = {"host": "models.example", "authorization": "Bearer pf-1"}
        assert (await http.get("/v1/models", headers=headers)).status_code == 200


async def test_the_name_of_an_allowed_origin_is_a_name_of_the_server() -> None:
    async with client(PublicSecurityConfig(), cors=("https://chat.example",)) as http:
        assert (await http.get("/v1/models", headers={"host": "chat.example"})).status_code == 200
