"""The second tab."""

import re

from playwright.sync_api import expect


def test_the_fleet_is_shown_and_kept_up_to_date(stack, visit, take_screenshot) -> None:
    visited = visit(f"{stack.url}/#fleet")
    page = visited.page
    replicas = page.get_by_role("table", name="Replicas").locator("tbody tr")
    expect(replicas).to_have_count(2)
    expect(replicas.first).to_contain_text("healthy")
    page.get_by_role("tab", name="Compare").click()
    page.get_by_label("Prompt").fill("Tell me of the sea.")
    page.get_by_label("Mode").select_option("on")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#verdict")).to_contain_text("identical")
    page.get_by_role("tab", name="Fleet").click()
    decisions = page.get_by_role("table", name="Why rounds drafted, or did not")
    expect(decisions.get_by_role("row", name=re.compile("requested"))).to_contain_text("the request asks for it")
    controller = page.get_by_role("table", name=re.compile("Controller"))
    expect(controller.get_by_role("row", name=re.compile("draft"))).to_contain_text("%")
    expect(page.locator("#fleet dl div").filter(has_text="draft tokens accepted")).to_contain_text(
        re.compile(r"\d+ % *\n? *\d+ of \d+")
    )
    take_screenshot(page, "fleet-emulated")
    assert visited.complaints == []


def test_acceptance_is_drawn_over_time_with_the_versions(stack, visit, take_screenshot) -> None:
    versions = stack.orchestrator.service.sessions.control.acceptance["eagle3"].versions
    for second in range(600):
        versions.add(second // 300, second % 3 + second // 300, float(second))
    visited = visit(f"{stack.url}/#fleet")
    region = visited.page.get_by_role("region", name="Acceptance over time")
    image = region.get_by_role("img", name="On average 2.00 with version 0, 3.00 with version 1.")
    expect(image).to_be_visible()
    expect(image.locator("line.swap")).to_have_count(1)
    expect(image).to_contain_text("v1")
    take_screenshot(visited.page, "fleet-acceptance")
    assert visited.complaints == []


def test_what_drafts_are_worth_is_shown_by_place_and_kind(stack, visit, take_screenshot) -> None:
    visited = visit(f"{stack.url}/#fleet")
    page = visited.page
    kinds = page.get_by_role("table", name="Acceptance by kind of request")
    page.get_by_role("tab", name="Compare").click()
    page.get_by_label("Prompt").fill("Tell me of the sea.")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#verdict")).to_contain_text("identical")
    page.get_by_role("tab", name="Fleet").click()
    expect(kinds.get_by_role("row", name=re.compile("plain"))).to_contain_text("%")
    controller = page.get_by_role("table", name=re.compile("Controller"))
    for heading in ("speed-up expected", "measured", "acceptance expected, by position"):
        expect(controller.get_by_role("columnheader", name=heading)).to_be_visible()
    expect(controller.get_by_role("row", name=re.compile("draft"))).to_contain_text(re.compile(r"\d\.\d\dx"))
    take_screenshot(page, "fleet-worth")
    assert visited.complaints == []


def test_tabs_follow_the_arrow_keys_and_the_address(stack, visit) -> None:
    page = visit(stack.url).page
    compare, fleet = page.get_by_role("tab", name="Compare"), page.get_by_role("tab", name="Fleet")
    compare.focus()
    page.keyboard.press("ArrowRight")
    expect(fleet).to_be_focused()
    expect(fleet).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("tabpanel", name="Fleet")).to_be_visible()
    expect(page.get_by_role("tabpanel", name="Compare")).to_be_hidden()
    assert page.url.endswith("#fleet")
    page.keyboard.press("ArrowRight")
    expect(compare).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Theme")).to_be_focused()


def test_nothing_is_asked_for_while_nobody_looks(stack, visit) -> None:
    visited = visit(stack.url)
    page = visited.page
    page.get_by_label("Prompt").fill("Tell me of the sea.")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#verdict")).to_contain_text("identical")
    assert sum(url.endswith("/fleet") for url in visited.requests) == 1
