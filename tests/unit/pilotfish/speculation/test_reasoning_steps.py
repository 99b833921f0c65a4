"""Where a step ends, however its text is cut into tokens."""

import itertools

from pilotfish.speculation.reasoning_steps import StepText


def cuts(text: bytes) -> list[list[bytes]]:
    """All ways to cut it into pieces."""
    places = range(1, len(text))
    chosen = itertools.chain.from_iterable(itertools.combinations(places, count) for count in range(len(text)))
    return [[text[a:b] for a, b in itertools.pairwise((0, *cut, len(text)))] for cut in chosen]


def num_pieces_of_step(pieces: list[bytes], *ends: bytes) -> int | None:
    step = StepText(ends or (b"\n\n",))
    return next((index + 1 for index, piece in enumerate(pieces) if step.add(piece)), None)


def test_a_step_ends_with_the_token_that_completes_an_empty_line_behind_its_first_word() -> None:
    for text in (b"ab\n\ncd", b"a\n\n", b"\n\na\n\nb", b" \na\n\nbc"):
        end = text.index(b"\n\n", text.index(b"a")) + 2
        for pieces in cuts(text):
            num_pieces = num_pieces_of_step(pieces)
            assert num_pieces is not None
            # No earlier token has all of it, and this one does.
            assert len(b"".join(pieces[: num_pieces - 1])) < end <= len(b"".join(pieces[:num_pieces]))


def test_it_goes_on_without_one() -> None:
    for text in (b"a\nb\nc", b"\n\n\n", b"a\n"):
        assert all(num_pieces_of_step(pieces) is None for pieces in cuts(text))


def test_a_mark_ends_it_too() -> None:
    assert num_pieces_of_step([b"so", b"</th", b"ink>", b"\n\n"], b"\n\n", b"</think>") == 3
