"""Answers with drafts, made by hand."""

from collections.abc import Callable

import pytest

from pilotfish.examine.drafted_answer import DraftedAnswer, RehearsedDraft

MakeAnswer = Callable[..., DraftedAnswer]


@pytest.fixture(scope="session")
def make_answer() -> MakeAnswer:
    """An answer of the tokens 0, 1, 2, ...; accepted: for each place from 1 on, how many of five drafts are its own."""

    def make(length: int, accepted: list[int], *, is_whole: bool = False, category: str = "chat") -> DraftedAnswer:
        drafts = {
            place: RehearsedDraft(tuple(place + at if at < good else -1 for at in range(5)), (0.5,))
            for place, good in enumerate(accepted, start=1)
        }
        return DraftedAnswer(category, 0.0, 3, tuple(range(length)), is_whole, drafts=drafts)

    return make
