"""axe-core finds nothing, in both themes, on a wide and on a narrow page."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def violations(page: Page) -> list[str]:
    page.evaluate(AXE)
    found: Any = page.evaluate("rules => axe.run({runOnly: rules})", RULES)
    return [f"{each['id']}: {node['html']}" for each in found["violations"] for node in each["nodes"]]


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_axe_finds_nothing(stack, visit, take_screenshot, color_scheme) -> None:
    page = visit(stack.url, color_scheme=color_scheme).page
    expect(page.locator("#server")).to_contain_text("emulated")
    assert violations(page) == []
    page.get_by_label("Prompt").fill("Tell me of the sea.")
    page.get_by_label("Mode").select_option("on")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#verdict")).to_contain_text("identical")
    assert violations(page) == []
    take_screenshot(page, f"compare-{color_scheme}")
    page.get_by_role("tab", name="Fleet").click()
    expect(page.get_by_role("table", name="Replicas").locator("tbody tr")).to_have_count(2)
    assert violations(page) == []
    take_screenshot(page, f"fleet-{color_scheme}")


def test_a_problem_is_accessible(stack, visit) -> None:
    page = visit(stack.url).page
    page.route("**/v1/chat/completions", lambda route: route.abort())
    page.get_by_label("Prompt").fill("Tell me of the sea.")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert").filter(visible=True)).to_have_count(2)
    assert violations(page) == []


def test_a_narrow_page_does_not_scroll_sideways(stack, visit, take_screenshot) -> None:
    page = visit(stack.url).page
    page.set_viewport_size({"width": 320, "height": 800})
    for name in ("Compare", "Fleet"):
        page.get_by_role("tab", name=name).click()
        expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), name
    take_screenshot(page, "narrow")
