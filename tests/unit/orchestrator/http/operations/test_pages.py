import re

import httpx
import pytest
from starlette.applications import Starlette

from orchestrator.http.operations.pages import playground_routes


@pytest.fixture
async def client():
    transport = httpx.ASGITransport(Starlette(routes=playground_routes()))
    async with httpx.AsyncClient(transport=transport, base_url="http://playground") as client:
        yield client


async def files_of(client: httpx.AsyncClient) -> dict[str, httpx.Response]:
    """Everything that the page loads, by path, as a browser finds it."""
    waiting, files = ["/"], {}
    while waiting:
        path = waiting.pop()
        if path in files:
            continue
        files[path] = await client.get(path)
        text = files[path].text
        waiting += ["/" + name for name in re.findall(r'(?:src|href)="(playground/[^"]+)"', text)]
        waiting += ["/playground/" + name for name in re.findall(r'^import .* from "\./([^"]+)"', text, re.MULTILINE)]
    return files


async def test_everything_that_the_page_loads_is_here(client: httpx.AsyncClient) -> None:
    files = await files_of(client)
    assert {path: file.status_code for path, file in files.items()} == dict.fromkeys(files, 200)
    assert {"/", "/playground/main.js", "/playground/style.css", "/playground/token_text.js"} <= files.keys()
    types = {path.rpartition(".")[2]: file.headers["content-type"].partition(";")[0] for path, file in files.items()}
    assert types == {"/": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


async def test_nothing_unused_is_served(client: httpx.AsyncClient) -> None:
    assert {route.path for route in playground_routes()} == (await files_of(client)).keys()


async def test_only_what_comes_from_here_may_run(client: httpx.AsyncClient) -> None:
    for path, file in (await files_of(client)).items():
        policy = file.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; "), path
        assert "unsafe" not in policy
        assert "*" not in policy
        assert file.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", file.text), f"{path} names another place"


async def test_files_outside_the_folder_are_not_served(client: httpx.AsyncClient) -> None:
    for path in ("/playground/../pages.py", "/playground/%2e%2e/pages.py", "/playground/index.html", "/playground/"):
        assert (await client.get(path)).status_code == 404
