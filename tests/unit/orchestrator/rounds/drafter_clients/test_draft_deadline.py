import math
from pathlib import Path

import pytest

from orchestrator.rounds.commands import Command, Send, Wake, Woken
from orchestrator.rounds.drafter_clients.draft_deadline import draft_deadline_s
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter

DOCS = Path(__file__).parents[5] / "docs"
WORDS = {3: "three", 8: "eight"}


@pytest.mark.parametrize(
    ("num_tokens", "decode_s", "ask_s", "expected"),
    [
        (4, 0.008, 0.003, 0.032),  # as plain decoding
        (1, 0.002, 0.001, 0.01),  # what an event loop may be late
        (4, None, 0.0, 0.2),  # nothing is measured yet
        (2, 0.008, 0.020, 0.060),  # drafts take long now: three times as long as they do
        (2, 0.008, 5.0, 0.128),  # but eight times plain decoding at most
    ],
)
def test_a_draft_may_take_as_long_as_plain_decoding_or_a_few_times_what_drafts_do(
    num_tokens: int, decode_s: float | None, ask_s: float, expected: float
) -> None:
    assert draft_deadline_s(num_tokens, decode_s, ask_s) == pytest.approx(expected)


@pytest.mark.parametrize("page", ["failures.md"])
def test_the_pages_say_the_same(page: str) -> None:
    before_s, least_s = draft_deadline_s(1, 0, 0), draft_deadline_s(1, 1e-6, 0)
    patience, most = (WORDS[round(draft_deadline_s(1, 0.1, ask_s) / 0.1)] for ask_s in (0.1, 100))
    rule = (
        f"one decode step per draft token (as measured; {1000 * before_s:g} ms before that), at least "
        f"{1000 * least_s:g} ms. Where drafts take longer at present: {patience} times what they take, but at most "
        f"{most} times the former"
    )
    assert rule in (DOCS / page).read_text(encoding="utf-8")


def test_a_draft_that_is_waited_for_without_end_wakes_nobody(memory_pool, memory_link, sequence_of) -> None:
    out: list[Command] = []
    drafter = RemoteDrafter(memory_pool(memory_link("draft-a")), lambda num_tokens: math.inf, out)
    assert drafter.ask(sequence_of(), 2, 3.0) is None
    assert any(isinstance(command, Send) for command in out)
    assert not any(isinstance(command, Wake) for command in out)


def test_a_late_answer_cannot_pass_for_one_on_what_follows_tokens_that_were_taken_back(
    memory_pool, memory_link, sequence_of
) -> None:
    drafter = RemoteDrafter(memory_pool(memory_link("draft-a")), lambda num_tokens: 0.5, [])
    sequence = sequence_of()
    drafter.ask(sequence.with_tokens((7, 8)), 2, 0.0)
    drafter.hear(Woken(0.5, "deadline"), sequence, 0.5)
    late = drafter.peer
    drafter.rewind(sequence.length)
    drafter.ask(sequence, 2, 1.0)
    assert drafter.peer is not late
