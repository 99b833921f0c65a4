"""Colours follow origins; tables say what the summary says."""

import dataclasses
import io

from rich.console import Console

from pilotfish.cli.rendering import render, segments, statistics_table
from pilotfish.client.answer import Chunk
from pilotfish.speculation.statistics import SpeculationStats
from pilotfish.types import FinishReason, TokenOrigin
from tests.support.summaries import make_summary

ACCEPTED, BONUS, PLAIN, RECOVERED = (
    TokenOrigin.ACCEPTED,
    TokenOrigin.BONUS,
    TokenOrigin.PLAIN,
    TokenOrigin.RECOVERED,
)
TEXTS = {1: "The", 2: " small", 3: " fish"}
SUMMARY = make_summary(
    model_id="tiny",
    finish_reason=FinishReason.STOP,
    stopped_by="END",
    num_prompt_tokens=12,
    num_output_tokens=11,
    num_cached_tokens=5,
    time_to_first_token_s=0.5,
    total_time_s=2.5,
    num_rounds=4,
    num_draft_tokens=20,
    num_accepted_tokens=6,
    num_plain_tokens=1,
    mean_acceptance_length=2.5,
    acceptance_per_position=(0.75, 0.5, 0.25, 0.0, 0.0),
)


def detokenize(token_ids: tuple[int, ...]) -> str:
    return "".join(TEXTS[token_id] for token_id in token_ids)


def refuse(token_ids: tuple[int, ...]) -> str:
    raise AssertionError("no need to ask")


def shown(table: object) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_a_mixed_chunk_is_cut_where_the_accepted_text_ends() -> None:
    chunk = Chunk("The small fish", (1, 2, 3), (ACCEPTED, ACCEPTED, BONUS))
    assert list(segments(chunk, detokenize)) == [("The small", ACCEPTED), (" fish", BONUS)]
    three = Chunk("The small fish", (1, 2, 3), (TokenOrigin.GRAMMAR, ACCEPTED, BONUS))
    assert [origin for _, origin in segments(three, detokenize)] == [TokenOrigin.GRAMMAR, ACCEPTED, BONUS]
    assert "".join(text for text, _ in segments(three, detokenize)) == "The small fish"


def test_render_writes_the_text_and_returns_it_with_the_summary() -> None:
    console = Console(file=io.StringIO(), width=10)
    answer = [Chunk("The small ", (1, 2), (ACCEPTED, BONUS)), Chunk("[fish] swims far", (3,), (PLAIN,)), SUMMARY]
    text, summary = render(answer, console, refuse)
    assert text == "The small [fish] swims far"
    assert console.file.getvalue() == text + "\n"  # type: ignore[attr-defined]
    assert summary is SUMMARY


def test_render_colours_by_origin_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", no_color=False)
    answer = [Chunk("The small fish", (1, 2, 3), (ACCEPTED, ACCEPTED, RECOVERED)), SUMMARY]
    render(answer, console, detokenize)
    assert console.file.getvalue() == "\x1b[32mThe small\x1b[0m\x1b[33m fish\x1b[0m\n"  # type: ignore[attr-defined]


def test_statistics_say_what_happened() -> None:
    text = shown(statistics_table(SUMMARY))
    for part in ("11 after a prompt of 12, 5 from the prefix cache", "stop ('END')", "500 ms", "5.0 tokens/s"):
        assert part in text
    for part in ("6 of 20 (30%)", "4, 2.50 tokens each", "75% 50% 25% 0% 0%"):
        assert part in text


def test_statistics_of_a_plain_answer_show_no_rounds_but_the_reason() -> None:
    plain = dataclasses.replace(SUMMARY, speculation=SpeculationStats(reason="asked for"), emulated=True)
    text = shown(statistics_table(plain))
    assert "drafts accepted" not in text
    assert "asked for" in text
    assert "tiny (emulated hardware)" in text
