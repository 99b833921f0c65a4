"""Take the playground's pictures for the README and docs: the default model, a text that a lookup guesses well.

Needs Chromium on the path and the default model (`pilotfish models pull`). Writes docs/images/playground-*.png.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from pilotfish.config import config_from_dict
from pilotfish.launch.local_stack import LocalStack

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PROMPT = (
    "Repeat this list three times: lighthouse keeper, harbour pilot, deep sea diver, net mender, ship's cook, "
    "rope maker, chart drawer."
)
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
        compare(page)
        page.screenshot(path=IMAGES / "playground-compare.png")
        page.get_by_role("tab", name="Fleet").click()
        expect(page.get_by_role("table", name="Replicas").locator("tbody tr")).to_have_count(2)
        page.screenshot(path=IMAGES / "playground-fleet.png", full_page=True)
        browser.close()


def compare(page: Page) -> None:
    """One comparison, with the pointer on an accepted draft at the end."""
    page.get_by_label("Prompt").fill(PROMPT)
    page.get_by_label("Run", exact=True).select_option("in-turn")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#verdict")).to_contain_text("identical:")
    page.locator("#pane-speculative .t.accepted").nth(20).hover()


if __name__ == "__main__":
    main()
