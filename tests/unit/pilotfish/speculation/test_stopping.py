import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.speculation.stopping import StopStringMatcher, cut
from pilotfish.types import FinishReason

TOKENS = st.lists(st.integers(0, 5), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("tokens", "accepted", "remaining", "expected"),
    [
        ((5, 6, 7), 2, 9, ((5, 6, 7), 2, None)),
        ((5, 1, 7), 2, 9, ((5, 1), 2, FinishReason.STOP)),
        ((1, 6, 7), 2, 9, ((1,), 1, FinishReason.STOP)),
        ((5, 6, 1), 2, 9, ((5, 6, 1), 2, FinishReason.STOP)),
        ((5, 6, 7), 2, 3, ((5, 6, 7), 2, FinishReason.LENGTH)),
        ((5, 6, 7), 2, 1, ((5,), 1, FinishReason.LENGTH)),
        ((5, 1, 7), 2, 2, ((5, 1), 2, FinishReason.STOP)),
        ((5, 1, 7), 2, 1, ((5,), 1, FinishReason.LENGTH)),
    ],
)
def test_cut(tokens, accepted, remaining, expected):
    assert cut(tokens, accepted, stop_token_ids=(1, 2), remaining_tokens=remaining) == expected


@given(TOKENS, st.sets(st.integers(0, 5)), st.integers(1, 20), st.data())
def test_cutting_blocks_equals_cutting_token_by_token(tokens, stops, budget, data):
    output, reason, position = [], None, 0
    while reason is None and position < len(tokens):
        size = data.draw(st.integers(1, len(tokens) - position))
        block = tokens[position : position + size]
        kept, _, reason = cut(block, size - 1, stop_token_ids=stops, remaining_tokens=budget - len(output))
        output += kept
        position += size
    expected, expected_reason = [], None
    for token_id in tokens:
        expected.append(token_id)
        if token_id in stops:
            expected_reason = FinishReason.STOP
        elif len(expected) == budget:
            expected_reason = FinishReason.LENGTH
        if expected_reason:
            break
    assert (output, reason) == (expected, expected_reason)


def stream(stops, pieces):
    matcher = StopStringMatcher(stops)
    text = ""
    for piece in pieces:
        safe, matched = matcher.push(piece)
        text += safe
        if matched is not None:
            return text, matched
    return text + matcher.flush(), None


def by_definition(stops, text, num_passed=0):
    for end in range(num_passed + 1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.lists(st.text("abc", max_size=5), max_size=8))
def test_matching_does_not_depend_on_the_pieces(stops, pieces):
    assert stream(stops, pieces) == by_definition(stops, "".join(pieces))


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("abc", max_size=5), max_size=5),
    st.lists(st.text("abc", max_size=5), max_size=5),
)
def test_no_match_ends_in_what_is_passed_by(stops, passed, pieces):
    matcher = StopStringMatcher(stops)
    text, matched = "".join(map(matcher.pass_by, passed)), None
    for piece in pieces:
        safe, matched = matcher.push(piece)
        text += safe
    expected = by_definition(stops, "".join(passed + pieces), len("".join(passed)))
    assert (text + matcher.flush(), matched) == expected


def test_holds_back_only_what_could_begin_a_stop_string():
    matcher = StopStringMatcher(["\n\nUser:", "END"])
    assert matcher.push("one\n") == ("one", None)
    assert matcher.push("two E") == ("\ntwo ", None)
    assert matcher.push("N") == ("", None)
    assert matcher.push("TRY") == ("ENTRY", None)
    assert matcher.push("\n\nUs") == ("", None)
    assert matcher.flush() == "\n\nUs"


def test_an_empty_stop_string_is_refused():
    with pytest.raises(ValueError, match="empty"):
        StopStringMatcher(["", "x"])
