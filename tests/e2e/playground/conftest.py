"""The playground in headless Chromium, over a whole emulated stack in this process."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from pilotfish.config import config_from_dict
from tests.support.stack import StackThread

SCREENSHOTS = Path(__file__).parents[3] / "build" / "screenshots"
"""Kept by continuous integration."""
PATIENCE_MS = 60_000
"""How long a page may take over anything; Playwright's own 5 s pass on a busy machine."""


def services(cache_dir: Path, *, profile: str = "instant", **orchestrator: Any) -> StackThread:
    """A target, a drafter and an orchestrator on a thread of their own."""
    # Whether a draft comes in time is another matter, on a busy machine too.
    section = {"speculation": {"draft_deadline_ms": 60_000}, **orchestrator}
    emulation = {"profile": profile, "acceptance": 0.7}
    sections = {"emulation": emulation, "cache_dir": str(cache_dir), "orchestrator": section}
    return StackThread(config_from_dict(sections), with_draft=True)


@pytest.fixture
def start_stack(tmp_path: Path) -> Iterator[Callable[..., StackThread]]:
    """Starts a stack with settings of its own; what is still running at the end is stopped."""
    with contextlib.ExitStack() as exits:
        yield lambda **settings: exits.enter_context(services(tmp_path / "cache", **settings))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackThread]:
    """Shared by the tests that need nothing special."""
    with services(tmp_path_factory.mktemp("cache")) as stack:
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
