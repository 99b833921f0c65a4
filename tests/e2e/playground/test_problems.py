"""What goes wrong is said, with what to do about it."""

import re
from typing import Any

from playwright.sync_api import Page, expect


def run(page: Page) -> None:
    page.get_by_label("Prompt").fill("Tell me of the sea.")
    page.get_by_role("button", name="Run").click()


def test_a_busy_server_is_told_from_a_broken_one(start_stack, visit, take_screenshot) -> None:
    """One request at a time, no queue: of two together one is refused."""
    page = visit(start_stack(profile="a100-70b", max_concurrent_requests=1, max_queued_requests=0).url).page
    page.get_by_label("Tokens", exact=True).fill("60")  # so long that the other one comes meanwhile
    run(page)
    alert = page.get_by_role("alert").filter(visible=True)
    expect(alert).to_contain_text("The server is busy: 1 requests are being served, which is the limit")
    expect(alert).to_contain_text(re.compile(r"\(in \d+ s\)"))
    expect(alert).to_have_count(1)
    take_screenshot(page, "busy")
    page.get_by_label("Run", exact=True).select_option("in-turn")
    page.get_by_label("Tokens", exact=True).fill("8")
    alert.get_by_role("button", name="Try again").click()
    expect(page.locator("#verdict")).to_contain_text("identical")
    expect(alert).to_have_count(0)


def test_a_server_that_is_away_is_said_to_be(start_stack, visit) -> None:
    stack = start_stack()
    page = visit(stack.url).page
    expect(page.locator("#server")).to_contain_text("emulated")
    stack.stop()
    run(page)
    alert = page.get_by_role("alert").filter(visible=True)
    expect(alert).to_have_count(2)
    expect(alert.first).to_contain_text("The server cannot be reached: check that it still runs")
    page.get_by_role("tab", name="Fleet").click()
    expect(page.locator("#fleet-problem")).to_contain_text("The server cannot be reached")


def test_an_answer_that_breaks_off_is_not_taken_for_whole(start_stack, visit) -> None:
    stack = start_stack(profile="a100-70b")
    page = visit(stack.url).page
    page.get_by_label("Tokens", exact=True).fill("4000")
    run(page)
    expect(page.locator("#pane-speculative .t").nth(3)).to_be_visible()
    stack.stop()
    expect(page.locator("#pane-speculative").get_by_role("alert")).to_be_visible()
    expect(page.locator("#verdict")).not_to_contain_text("are identical")


def test_a_wrong_value_is_named_by_the_server(stack, visit) -> None:
    page = visit(stack.url).page
    page.get_by_label("K", exact=True).evaluate("element => element.max = 9999")
    page.get_by_label("K", exact=True).fill("999")
    run(page)
    alert = page.locator("#pane-speculative").get_by_role("alert")
    expect(alert).to_contain_text("The server refused with status 400")
    expect(alert).to_contain_text("num_speculative_tokens is 999")


def test_a_server_that_wants_a_key_gets_the_one_that_is_typed(stack, visit) -> None:
    page = visit(stack.url).page

    def guard(route: Any) -> None:
        if route.request.headers.get("authorization") == "Bearer sesame":
            route.continue_()
        else:
            route.fulfill(status=401, json={"error": {"message": "no API key was given", "type": "", "code": ""}})

    page.route(re.compile("/(v1/|fleet$)"), guard)
    page.reload()
    expect(page.locator("#server")).to_contain_text("The server wants an API key")
    page.get_by_label("API key").fill("sesame")
    page.get_by_label("API key").press("Tab")
    expect(page.locator("#server")).to_contain_text("emulated instant")
    run(page)
    expect(page.locator("#verdict")).to_contain_text("identical")
