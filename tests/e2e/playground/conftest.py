"""The playground in headless Chromium, over a whole emulated stack in this process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from playwright.sync_api import expect, sync_playwright

from draft_service.server import start_draft
from orchestrator.server import OrchestratorServer
from pilotfish.config import config_from_dict
from target_service.server import start_target
from tests.support.loop_thread import LoopThread

SCREENSHOTS = Path(__file__).parents[3] / "build" / "screenshots"
"""Kept by continuous integration."""
PATIENCE_MS = 60_000
"""How long a page may take over anything; Playwright's own 5 s pass on a busy machine."""


class Stack:
    """`with Stack(cache_dir, ...) as stack`: a target, a drafter and an orchestrator on a thread of their own."""

    def __init__(self, cache_dir: str, *, profile: str = "instant", **orchestrator: Any) -> None:
        self._sections = {
            "emulation": {"profile": profile, "acceptance": 0.7},
            "target": {"model": "nobody/has-this", "port": 0},
            "draft": {"port": 0},
            "cache_dir": cache_dir,
        }
        # Whether a draft comes in time is another matter, on a busy machine too.
        speculation = {"draft_deadline_ms": 60_000, **orchestrator.pop("speculation", {})}
        self._orchestrator_section = {"speculation": speculation, **orchestrator}
        self.url = ""

    def __enter__(self) -> Stack:
        self._loop = LoopThread(make_loop=uvloop.new_event_loop, name="stack")
        self._loop.run(self._start())
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.stop()
        finally:
            self._loop.close()

    def stop(self) -> None:
        """Stop all services. Idempotent."""
        self._loop.run(self._stop())

    async def _start(self) -> None:
        config = config_from_dict(self._sections)
        self._target = await start_target(config)
        self._draft = await start_draft(config)
        addresses = {"target_addresses": [self._target.address], "draft_addresses": [self._draft.address]}
        section = {"port": 0, **addresses, **self._orchestrator_section}
        self._orchestrator = await OrchestratorServer.start(
            config_from_dict({**self._sections, "orchestrator": section})
        )
        await self._orchestrator.wait_ready(60)
        self.url = self._orchestrator.http_url

    async def _stop(self) -> None:
        for service in (self._orchestrator, self._draft, self._target):
            await service.drain_and_stop(0)


@pytest.fixture
def start_stack(tmp_path: Path) -> Iterator[Callable[..., Stack]]:
    """Starts a stack with settings of its own; what is still running at the end is stopped."""
    started: list[Stack] = []

    def start(**settings: Any) -> Stack:
        started.append(Stack(str(tmp_path / "cache"), **settings).__enter__())
        return started[-1]

    yield start
    for stack in started:
        stack.__exit__(None, None, None)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Shared by the tests that need nothing special."""
    with Stack(str(tmp_path_factory.mktemp("cache"))) as stack:
        yield stack


@pytest.fixture(scope="module")  # not longer: while it lives, this thread counts as one with a running event loop
def browser() -> Iterator[Any]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("no Chromium on the path: apt-get install chromium")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """A page and everything it complained about or asked of others."""

    def __init__(self, browser: Any, url: str, **context: Any) -> None:
        self._context = browser.new_context(viewport={"width": 1280, "height": 1000}, **context)
        self.page = self._context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._note)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(url)

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def close(self) -> None:
        self._context.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Visit]]:
    """Opens a page in a browser profile of its own."""
    visits: list[Visit] = []

    def open_page(url: str, **context: Any) -> Visit:
        visits.append(Visit(browser, url, **context))
        return visits[-1]

    yield open_page
    for each in visits:
        each.close()


@pytest.fixture(scope="session")
def take_screenshot() -> Callable[[Any, str], None]:
    """Keeps what the page looks like."""

    def take(page: Any, name: str) -> None:
        page.screenshot(path=SCREENSHOTS / f"{name}.png")

    return take
