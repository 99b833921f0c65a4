"""The recorder's thread: what it writes, what it drops, and that nothing ends it."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from pilotfish.engine.learning import recorder as module
from pilotfish.engine.learning.recorder import Piece, Recorder
from pilotfish.features import Features
from pilotfish.learning.record import LearnedText
from pilotfish.messages import CloseSequence, OpenSequence
from pilotfish.types import SamplingParams


class Values:
    """In a tensor's place: one byte a token."""

    def __init__(self, *values: int) -> None:
        self.data = bytes(values)
        self.nbytes = len(values)


def encode(values: Sequence[Values]) -> Features:
    data = b"".join(each.data for each in values)
    return Features(0, len(data), data)


@contextmanager
def recording(kept: list[LearnedText], max_bytes: int = 1000) -> Iterator[Recorder]:
    """What is kept is there after the block."""
    recorder = Recorder(kept.append, encode, max_bytes=max_bytes)
    try:
        yield recorder
    finally:
        recorder.end()


def opened(sequence_id: int) -> OpenSequence:
    return OpenSequence(sequence_id, (1, 2), SamplingParams(), learn_as=f"request {sequence_id}")


def test_a_steps_rows_go_to_their_sequences() -> None:
    kept: list[LearnedText] = []
    with recording(kept) as recorder:
        one, two = (recorder.open(opened(number)) for number in (1, 2))
        recorder.add([Piece(one, 0, [1, 2, 3]), Piece(two, 4, [7, 8])], Values(10, 20, 30, 40, 50))
        recorder.add([Piece(two, 6, [9]), Piece(one, 3, [4])], Values(60, 70))
        recorder.add_features(Piece(one, 4, [5, 6]), Features(4, 1, b"\x63"))
        for number in (1, 2):
            recorder.close(CloseSequence(number, is_finished=True))
    assert [(text.request_id, text.token_ids, text.features) for text in kept] == [
        ("request 1", (1, 2, 3, 4, 5), Features(0, 5, bytes((10, 20, 30, 70, 99)))),
        ("request 2", (7, 8, 9), Features(4, 3, bytes((40, 50, 60)))),
    ]


def test_a_prompts_beginning_that_was_not_computed_is_that_of_a_prompt_before() -> None:
    kept: list[LearnedText] = []
    with recording(kept) as recorder:
        recorder.add([Piece(recorder.open(opened(1)), 0, [1, 2, 3, 4])], Values(10, 20, 30, 40))
        recorder.close(CloseSequence(1, is_finished=True))
        recorder.add([Piece(recorder.open(opened(2)), 1, [2, 7, 8])], Values(21, 70, 80))
        recorder.close(CloseSequence(2, is_finished=True))
    assert [(text.token_ids, text.prompt_len) for text in kept] == [((1, 2, 3, 4), 2), ((1, 2, 7, 8), 2)]
    assert kept[1].features == Features(0, 4, bytes((10, 21, 70, 80)))


def test_only_what_came_to_its_end_is_kept() -> None:
    kept: list[LearnedText] = []
    with recording(kept) as recorder:
        for number in (1, 2, 3):
            recorder.add([Piece(recorder.open(opened(number)), 0, [1, 2, 3, 4])], Values(1, 2, 3, 4))
        recorder.close(CloseSequence(1))
        recorder.close(CloseSequence(2, is_finished=True))
        recorder.close(CloseSequence(2, is_finished=True))
        recorder.close(CloseSequence(9, is_finished=True))
    assert [text.request_id for text in kept] == ["request 2"]


def test_what_open_sequences_hold_is_bounded() -> None:
    kept: list[LearnedText] = []
    with recording(kept, max_bytes=8) as recorder:
        one, two = (recorder.open(opened(number)) for number in (1, 2))
        recorder.add([Piece(one, 0, [1, 2, 3, 4, 5])], Values(*range(5)))
        recorder.add([Piece(two, 0, [1, 2, 3, 4, 5])], Values(*range(5)))  # too much
        recorder.close(CloseSequence(1, is_finished=True))
        recorder.add([Piece(two, 5, [6, 7, 8, 9])], Values(*range(4)))
        recorder.close(CloseSequence(2, is_finished=True))
    assert [text.token_ids for text in kept] == [(1, 2, 3, 4, 5), (6, 7, 8, 9)]


def test_what_the_thread_cannot_follow_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_WAITING_BYTES", 6)
    kept: list[LearnedText] = []
    hangs, goes_on = threading.Event(), threading.Event()

    def keep(text: LearnedText) -> None:
        hangs.set()
        goes_on.wait()
        kept.append(text)

    recorder = Recorder(keep, encode, max_bytes=1000)
    first, second = (recorder.open(opened(number)) for number in (1, 2))
    recorder.add([Piece(first, 0, [1, 2, 3, 4])], Values(*range(4)))
    recorder.close(CloseSequence(1, is_finished=True))
    hangs.wait()
    recorder.add([Piece(second, 0, [1, 2, 3, 4])], Values(*range(4)))
    recorder.add([Piece(second, 4, [5, 6, 7, 8])], Values(*range(4)))
    recorder.close(CloseSequence(2, is_finished=True))
    goes_on.set()
    recorder.end()
    assert [text.token_ids for text in kept] == [(1, 2, 3, 4)] * 2


def test_a_text_that_cannot_be_kept_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    kept: list[LearnedText] = []

    def keep(text: LearnedText) -> None:
        if text.request_id != "request 3":
            raise ValueError(text.request_id)
        kept.append(text)

    recorder = Recorder(keep, encode, max_bytes=1000)
    for number in (1, 2, 3):
        recorder.add([Piece(recorder.open(opened(number)), 0, [1, 2, 3, 4])], Values(*range(4)))
        recorder.close(CloseSequence(number, is_finished=True))
    recorder.end()
    assert [text.request_id for text in kept] == ["request 3"]
    assert caplog.text.count("answers are not affected") == 1
