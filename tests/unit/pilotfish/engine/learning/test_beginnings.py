"""Texts whose prompts' beginnings were in the cache."""

import pytest

from pilotfish.engine.learning import beginnings as module
from pilotfish.engine.learning.beginnings import Beginnings
from pilotfish.engine.learning.recording import MAX_TEXT_TOKENS
from pilotfish.features import Features
from pilotfish.learning.record import LearnedText


def text(token_ids: range, first: int, prompt_len: int, width: int = 1) -> LearnedText:
    """Its features say which token they are of."""
    data = bytes(token_id % 256 for token_id in token_ids for _ in range(width))
    return LearnedText("mine", "kind", prompt_len, tuple(token_ids), Features(first, len(token_ids), data))


def test_a_beginning_that_another_prompt_had_is_put_before_a_text() -> None:
    beginnings = Beginnings()
    whole = text(range(20), 0, 12)
    assert beginnings.complete(whole, range(12)) is whole
    completed = beginnings.complete(text(range(8, 30), 8, 15), range(23))
    assert completed == text(range(30), 0, 23)


def test_what_is_not_known_is_left_out() -> None:
    beginnings = Beginnings()
    cut = text(range(8, 30), 8, 15)
    assert beginnings.complete(cut, range(23)) is cut  # no prompt was there before
    beginnings.complete(text(range(20), 0, 6), range(6))
    assert beginnings.complete(cut, range(23)) is cut  # of the answer nothing is kept
    beginnings.complete(text(range(1, 20), 0, 12), range(1, 13))
    assert beginnings.complete(cut, range(23)) is cut  # it began otherwise
    beginnings.complete(text(range(20), 0, 12, width=2), range(12))
    assert beginnings.complete(cut, range(23)) is cut  # its features were of another form


def test_a_text_is_no_longer_than_others() -> None:
    beginnings = Beginnings()
    beginnings.complete(text(range(20), 0, 12), range(12))
    long = text(range(8, MAX_TEXT_TOKENS), 8, 15)
    assert beginnings.complete(long, range(23)).features.first_position == 0
    longer = text(range(8, MAX_TEXT_TOKENS + 1), 8, 15)
    assert beginnings.complete(longer, range(23)) is longer


def test_the_last_prompts_used_are_kept() -> None:
    beginnings = Beginnings()
    for number in range(1, 40):
        beginnings.complete(text(range(20), 0, 12), range(12)) if number == 1 else None
        beginnings.complete(text(range(100 * number, 100 * number + 20), 0, 12), range(12))
        assert beginnings.complete(text(range(8, 30), 8, 15), range(23)).features.first_position == 0
    gone = text(range(108, 130), 8, 15)
    assert beginnings.complete(gone, range(100, 123)) is gone


def test_a_prompt_that_is_computed_again_and_again_drives_out_no_other() -> None:
    beginnings = Beginnings()
    beginnings.complete(text(range(20), 0, 12), range(12))
    for _ in range(20):
        beginnings.complete(text(range(100, 120), 0, 12), range(100, 112))
    assert beginnings.complete(text(range(8, 30), 8, 15), range(23)).features.first_position == 0


def test_what_is_kept_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BYTES", 30)
    beginnings = Beginnings()
    for first in (0, 100, 200):
        beginnings.complete(text(range(first, first + 20), 0, 12), range(first, first + 12))
    begun = [text(range(first + 8, first + 30), 8, 15) for first in (0, 100, 200)]
    prompts = [range(first, first + 23) for first in (0, 100, 200)]
    completed = map(beginnings.complete, begun, prompts)
    assert [each.features.first_position for each in completed] == [8, 0, 0]
    beginnings.complete(text(range(40), 0, 31), range(31))
    assert beginnings.complete(begun[0], prompts[0]) is begun[0]
