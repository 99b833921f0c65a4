"""The page's modules that know nothing of the page."""

from typing import Any

import pytest
from playwright.sync_api import Page


@pytest.fixture(scope="module")
def page(stack, browser) -> Any:
    context = browser.new_context()
    page = context.new_page()
    page.goto(stack.url)
    yield page
    context.close()


@pytest.mark.parametrize(
    ("content", "texts", "pieces"),
    [
        ("a b", ["a", " b"], ["a", " b"]),
        (" a b", ["a", "b"], [" a", " b"]),  # decoded by itself, a token lost its space
        ("\U0001f40b!", ["\ufffd", "\ufffd", "!"], ["", "\U0001f40b", "!"]),  # one character of two tokens
        ("", ["\ufffd"], [""]),
        ("\U0001f40b", ["\ufffd"], ["\U0001f40b"]),  # the rest of a character that began in another event
        ("end", ["end", "<|im_end|>"], ["end", None]),  # the token that ends an answer is none of its text
        ("", ["<|im_end|>"], [None]),
        ("a\n\n", ["a", "\n\n"], ["a", "\n\n"]),
        ("aba", ["a", "b", "a"], ["a", "b", "a"]),
    ],
)
def test_pieces_add_up_to_the_text(page: Page, content: str, texts: list[str], pieces: list[str | None]) -> None:
    got = page.evaluate(
        "async ([content, texts]) => (await import('/playground/token_text.js')).cutText(content, texts)",
        [content, texts],
    )
    assert got == pieces
    assert "".join(piece or "" for piece in got) == content


ANSWER = """async (events) => {
  const { Answer } = await import('/playground/answer.js');
  const answer = new Answer(1000);
  for (const [nowMs, origins, drafted] of events) {
    const count = origins.length;
    answer.add({choices: [{delta: {content: 'x'.repeat(count)}, speculation: {tokens: {
      token_ids: origins.map((_, index) => index), texts: origins.map(() => 'x'), origins, round_draft_tokens: drafted,
    }}}]}, nowMs);
  }
  const { rounds, rate, acceptance, tokensPerRound, firstTokenMs } = answer;
  return { rounds, rate, acceptance, tokensPerRound, firstTokenMs };
}"""


def test_rounds_and_rates_follow_from_the_events(page: Page) -> None:
    accepted, recovered, bonus, plain = "accepted", "recovered", "bonus", "plain"
    events = [
        [1100, [plain], [0]],
        [1200, [accepted, recovered], [3, 3]],
        # Two rounds that came together, the second of which a limit cut off.
        [1400, [accepted, "grammar", bonus, accepted], [2, 2, 2, 4]],
    ]
    answer = page.evaluate(ANSWER, events)
    assert [(round_["drafted"], round_["accepted"]) for round_ in answer["rounds"]] == [(0, 0), (3, 1), (2, 2), (4, 1)]
    spans = [(round(each["startS"], 3), round(each["endS"], 3)) for each in answer["rounds"]]
    assert spans == [(0, 0.1), (0.1, 0.2), (0.2, 0.3), (0.3, 0.4)]
    assert answer["firstTokenMs"] == 100
    assert answer["rate"] == pytest.approx(6 / 0.3)
    assert answer["acceptance"] == pytest.approx(4 / 9)
    assert answer["tokensPerRound"] == pytest.approx(1 + 4 / 3)


ACCEPTANCE = """async (drafters) => {
  const { acceptanceFigures, describe, swaps } = await import('/playground/acceptance_plot.js');
  return {
    captions: acceptanceFigures(drafters).map((figure) => figure.querySelector('figcaption').textContent),
    marks: acceptanceFigures(drafters).map((figure) => figure.querySelectorAll('line.swap').length),
    versions: drafters.map(({ points }) => swaps(points).map((point) => point.drafter_version)),
    words: drafters.map(({ points }) => describe(points)),
  };
}"""


def test_acceptance_over_time_marks_the_swaps(page: Page) -> None:
    rounds = [(0, 10, 2.0), (0, 30, 2.4), (1, 20, 3.0), (0, 5, 2.0)]
    points = [
        {"at": 60.0 * index, "drafter_version": version, "num_rounds": num_rounds, "acceptance_length": length}
        for index, (version, num_rounds, length) in enumerate(rounds)
    ]
    drafters = [{"proposer": "eagle3", "points": points}, {"proposer": "suffix", "points": points[:1]}]
    shown = page.evaluate(ACCEPTANCE, drafters)
    assert shown["captions"] == ["eagle3: tokens per round with drafts"]
    assert shown["marks"] == [2]
    assert shown["versions"] == [[1, 0], []]
    assert shown["words"] == ["On average 2.27 with version 0, 3.00 with version 1.", "On average 2.00 with version 0."]
