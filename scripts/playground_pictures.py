"""Take the playground's pictures for the README and docs: the default model, a text that a lookup guesses well.

Needs Chromium on the path and the default model (`pilotfish models pull`). Writes docs/images/playground-*.png.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from pilotfish.cli.commands.demo import REWRITE
from pilotfish.config import config_from_dict
from pilotfish.launch.local_stack import LocalStack

IMAGES = Path(__file__).parents[1] / "docs" / "images"
TIMEOUT_MS = 120_000


def main() -> None:
    """See the module."""
    executable = shutil.which("chromium")
    if executable is None:
        sys.exit("no Chromium on the path: apt-get install chromium")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with LocalStack(config_from_dict({"draft": {"proposer": "suffix"}})) as stack, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 1060}, color_scheme="light")
        page.set_default_timeout(TIMEOUT_MS)
        expect.set_options(timeout=TIMEOUT_MS)
        page.goto(stack.http_url)
        compare(page, mode="on")  # the first one warms everything up
        compare(page, mode="on")
        page.locator("#pane-speculative .t.accepted").first.hover()
        page.screenshot(path=IMAGES / "playground-compare.png")
        compare(page, mode="auto")
        watch_fleet(page)
        page.screenshot(path=IMAGES / "playground-fleet.png")
        browser.close()


def compare(page: Page, *, mode: str) -> None:
    """One comparison to its end."""
    page.get_by_label("Prompt").fill(REWRITE)
    page.get_by_label("Run", exact=True).select_option("in-turn")
    page.get_by_label("Mode").select_option(mode)
    page.get_by_label("Tokens", exact=True).fill("120")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#verdict")).not_to_contain_text("identical:")
    expect(page.locator("#verdict")).to_contain_text("identical:")


def watch_fleet(page: Page) -> None:
    """Until the fleet shows an answer in the making."""
    page.set_viewport_size({"width": 1180, "height": 940})
    page.get_by_label("Run", exact=True).select_option("together")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("tab", name="Fleet").click()
    expect(page.locator("#fleet dd").nth(2)).to_have_text(re.compile(r"^[1-9]\d*$"))


if __name__ == "__main__":
    main()
