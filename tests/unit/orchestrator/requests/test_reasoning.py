"""Thoughts, calls and content of answers, whole and in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.requests.reasoning import HARMONY, PARSERS, AnswerParser, ReasoningParser, reasoning_marks
from orchestrator.requests.tools.tool_calls import ToolAnswer, ToolCallParser, joined_calls
from pilotfish.models.tokens.tool_prompt import CALL_BEGIN, CALL_END

THINK = PARSERS["qwen3"]
CALL = f'{CALL_BEGIN}{{"name": "find", "arguments": {{"what": "fish"}}}}{CALL_END}'


def parser(*, is_inside: bool = False) -> AnswerParser:
    return AnswerParser(ReasoningParser(THINK, is_inside=is_inside), ToolCallParser())


def told(answer: ToolAnswer) -> tuple[str, str, list[str]]:
    return answer.reasoning, answer.content, [call.name for call in joined_calls(answer.calls)]


@pytest.mark.parametrize(
    ("text", "is_inside", "expected"),
    [
        ("<think>\na b\n</think>\n\nc d ", False, ("a b", "c d ", [])),
        ("\n<think>a</think>b", False, ("a", "b", [])),
        ("a <b\n</think>\nc", True, ("a <b", "c", [])),
        ("<think>\n\n</think>\n\nc", False, ("", "c", [])),
        (" no <think>thoughts</think>", False, ("", " no <think>thoughts</think>", [])),
        ("<think>cut off </thi", False, ("cut off </thi", "", [])),
        ("cut off\n", True, ("cut off", "", [])),
        ("<thi", False, ("", "<thi", [])),
        (f"<think>{CALL}?</think>\n{CALL}", False, (f"{CALL}?", "", ["find"])),
        ("", True, ("", "", [])),
    ],
)
def test_an_answer_is_taken_apart_however_it_comes(text: str, is_inside: bool, expected: object) -> None:
    assert told(parser(is_inside=is_inside).finish(text)) == expected
    for size in range(1, len(text)):
        pieces = parser(is_inside=is_inside)
        answers = [pieces.push(text[start : start + size]) for start in range(0, len(text), size)]
        answers.append(pieces.finish())
        assert (
            "".join(answer.reasoning for answer in answers),
            "".join(answer.content for answer in answers),
            [call.name for answer in answers for call in answer.calls if call.name],
        ) == expected


@pytest.mark.parametrize(
    ("text", "is_inside", "num_tokens"),
    [
        ("<think>a</think>b </think>", False, 9),
        ("a</think>b", True, 2),
        ("a b", True, 3),
        ("a</think>b", False, 0),
        ("\n", False, 0),
    ],
)
def test_tokens_of_thoughts_are_counted(text: str, is_inside: bool, num_tokens: int) -> None:
    """A token is a character, or the end mark."""
    ids = [ord(character) for character in text.replace("</think>", "\0")]
    for size in range(1, len(ids) + 1):
        pieces = AnswerParser(ReasoningParser(THINK, is_inside=is_inside, end_id=0))
        for start in range(0, len(ids), size):
            shown = "".join(map(chr, ids[start : start + size])).replace("\0", "</think>")
            pieces.push(shown, ids[start : start + size])
        pieces.finish()
        assert pieces.num_reasoning_tokens == num_tokens
    unknown = AnswerParser(ReasoningParser(THINK, is_inside=is_inside))
    unknown.finish(text, ids)
    assert unknown.num_reasoning_tokens is AnswerParser().num_reasoning_tokens is None


@given(st.text("<think>/ \n", max_size=30), st.booleans(), st.integers(1, 5))
def test_pieces_join_to_the_whole(text: str, is_inside: bool, size: int) -> None:
    whole, pieces = ReasoningParser(THINK, is_inside=is_inside), ReasoningParser(THINK, is_inside=is_inside)
    expected = [whole.push(text), whole.finish()]
    found = [pieces.push(text[start : start + size]) for start in range(0, len(text), size)] + [pieces.finish()]
    for name in ("reasoning", "content"):
        assert "".join(getattr(each, name) for each in found) == "".join(getattr(each, name) for each in expected)


def test_the_template_tells_how_a_model_thinks() -> None:
    assert reasoning_marks("auto", "{{ message }}") is None
    assert reasoning_marks("auto", "{{ x.split('</think>')[-1] }}") == THINK
    assert reasoning_marks("auto", "'Here is my thought process:' … 'Here is my response:'") == PARSERS["granite"]
    assert reasoning_marks("auto", "'<|channel|>analysis<|message|>' + thinking + '<|end|>'") == HARMONY
    assert reasoning_marks("auto", "<|user|>{{ message }}<|end|>") is None
    assert reasoning_marks("none", "</think>") is None
    assert reasoning_marks("deepseek_r1", "") == THINK


@pytest.mark.parametrize("size", [1, 2, 7, 60, 500])
@pytest.mark.parametrize("max_calls", [1, 2, None])
def test_calls_beyond_those_wanted_are_left_out(size: int, max_calls: int | None) -> None:
    calls = [f'<tool_call>{{"name": "f", "arguments": {{"n": {number}}}}}</tool_call>' for number in range(3)]
    text = f"So: {calls[0]} and {calls[1]}{calls[2]} then"
    parser = AnswerParser(None, ToolCallParser(), max_calls)
    answers = [parser.push(text[at : at + size]) for at in range(0, len(text), size)]
    answers.append(parser.finish())
    told = joined_calls(piece for answer in answers for piece in answer.calls)
    assert [call.arguments for call in told] == [f'{{"n": {number}}}' for number in range(3)][:max_calls]
    assert "".join(answer.content for answer in answers).split() == ["So:", "and", "then"]
