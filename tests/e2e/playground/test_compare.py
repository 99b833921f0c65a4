"""Two answers side by side."""

import re
from typing import Any

from playwright.sync_api import Page, expect


def fill(page: Page, **fields: str) -> None:
    for label, value in fields.items():
        control = page.get_by_label(label.replace("_", " "), exact=True)
        if control.evaluate("element => element.tagName") == "SELECT":
            control.select_option(value)
        else:
            control.fill(value)


def run(page: Page, **fields: str) -> None:
    fill(page, Prompt="Tell me of the sea.", **fields)
    page.get_by_role("button", name="Run").click()


def origins(page: Page, pane: str) -> set[str]:
    found: list[str] = page.locator(f"#pane-{pane} .t").evaluate_all("spans => spans.map(span => span.classList[1])")
    return set(found)


def text_of(page: Page, pane: str) -> str:
    return page.locator(f"#pane-{pane} .answer").inner_text()


def test_both_answers_stream_and_are_found_identical(stack, visit, take_screenshot) -> None:
    visited = visit(stack.url)
    page = visited.page
    expect(page.locator("#server")).to_contain_text("emulated instant")
    expect(page.locator("#emulated")).to_be_visible()
    run(page, Mode="on", K="4", Tokens="60")
    expect(page.locator("#verdict")).to_contain_text("identical: 60 tokens")
    assert text_of(page, "plain") == text_of(page, "speculative")
    assert len(text_of(page, "plain").split()) == 60
    assert origins(page, "plain") == {"plain"}
    assert {"accepted", "recovered", "bonus"} <= origins(page, "speculative")
    for pane in ("plain", "speculative"):
        expect(page.locator(f'#pane-{pane} [data-number="tokens"]')).to_have_text("60")
        expect(page.locator(f'#pane-{pane} [data-number="rate"]')).to_have_text(re.compile(r"^\d+\.\d$"))
    expect(page.locator('#pane-speculative [data-number="acceptance"]')).to_have_text(re.compile(r"^\d+ %$"))
    expect(page.locator("#status")).to_contain_text("The texts are identical")
    take_screenshot(page, "compare-emulated")
    assert visited.complaints == []
    assert all(url.startswith(stack.url) for url in visited.requests), "the page asks nobody but its server"


def test_the_plot_shows_every_round(stack, visit) -> None:
    page = visit(stack.url).page
    run(page, Mode="on", K="3", Tokens="40")
    plot = page.get_by_role("img", name=re.compile("rounds with drafts"))
    expect(plot).to_have_attribute("aria-label", re.compile(r"on average [\d.]+ tokens drafted, 3 at most"))
    num_bars = plot.locator("path.drafted").evaluate("path => path.getAttribute('d').split('M').length - 1")
    described = re.match(r"(\d+) rounds", plot.get_attribute("aria-label") or "")
    assert described is not None
    assert num_bars == int(described[1]) > 5


def test_what_is_asked_for_is_what_is_set(stack, visit) -> None:
    page = visit(stack.url).page
    bodies: list[Any] = []
    page.on("request", lambda request: "completions" in request.url and bodies.append(request.post_data_json))
    fill(page, Proposer="ngram", K="2", Temperature="0.5", Seed="7", Tokens="8", Run="in-turn", Mode="on")
    run(page)
    expect(page.locator("#verdict")).to_contain_text("identical: 8 tokens")
    plain, speculative = bodies
    assert plain.pop("speculation") == {"mode": "off", "return_tokens": True}
    assert speculative.pop("speculation") == {
        "mode": "on",
        "return_tokens": True,
        "proposer": "ngram",
        "num_speculative_tokens": 2,
    }
    assert plain == speculative
    assert (plain["temperature"], plain["seed"], plain["max_tokens"]) == (0.5, 7, 8)


def test_a_token_tells_where_it_came_from(stack, visit) -> None:
    page = visit(stack.url).page
    run(page, Mode="on", K="4", Tokens="40")
    expect(page.locator("#verdict")).to_contain_text("identical")
    page.locator("#pane-speculative .t.accepted").first.hover()
    tooltip = page.get_by_role("tooltip")
    expect(tooltip).to_contain_text(re.compile(r"position \d+, accepted"))
    expect(tooltip).to_contain_text(re.compile(r"round \d+: [1-4] of 4 draft tokens accepted"))
    page.mouse.move(0, 0)
    expect(tooltip).to_be_hidden()


def test_the_keyboard_does_all_of_it(stack, visit) -> None:
    page = visit(stack.url).page
    prompt = page.get_by_label("Prompt")
    prompt.fill("Tell me of the sea.")
    prompt.press("Control+Enter")
    expect(page.locator("#verdict")).to_contain_text("identical")
    answer = page.get_by_role("group", name="Plain: the answer")
    answer.focus()
    answer.press("ArrowRight")
    detail = page.locator("#pane-plain .detail")
    expect(detail).to_contain_text("position 1, plain")
    answer.press("ArrowRight")
    expect(detail).to_contain_text("position 2, plain")
    answer.press("End")
    expect(detail).to_contain_text("position 160, plain")
    assert page.locator("#pane-plain .t.current").count() == 1


def test_escape_stops_both_answers(start_stack, visit) -> None:
    page = visit(start_stack(profile="a100-70b").url).page
    run(page, Tokens="4000")
    expect(page.locator("#pane-plain .t").nth(3)).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#verdict")).to_have_text("stopped")
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    page.evaluate("() => location.hash = 'fleet'")
    expect(page.locator("#fleet dd").first).to_have_text("0")  # the server has let go of both


def test_answers_that_differ_are_shown_to(stack, visit) -> None:
    """Of the server's answers one is changed on its way."""
    page = visit(stack.url).page

    def change(route: Any) -> None:
        body = route.request.post_data_json
        if body["speculation"]["mode"] != "off":
            body["seed"] += 1
        route.continue_(post_data=body)

    page.route("**/v1/chat/completions", change)
    run(page, Tokens="20", Temperature="1")
    expect(page.locator("#verdict")).to_have_text(re.compile(r"The texts differ from token \d+ on."))
    assert page.locator("#pane-plain .t.differs").count() == 1
    assert page.locator("#pane-speculative .t.differs").count() == 1
