"""Calls are found in text however it is cut into pieces."""

import itertools
import json
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.requests.reasoning import AnswerParser
from orchestrator.requests.tools.tool_calls import ToolAnswer, ToolCallParser, joined_calls
from pilotfish.chat import ToolCall

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
OTHER = '<tool_call>{"name": "get_time", "parameters": {}}</tool_call>'
MARKED = {"text": 'a </tool_call> b <tool_call>\n{"name": "f", "arguments": {}}\n</tool_call> \\" \\ 😀'}


def call_of(arguments: object, **options: object) -> str:
    return f'<tool_call>\n{{"name": "f", "arguments": {json.dumps(arguments, **options)}}}\n</tool_call>'


def in_pieces(text: str, cuts: Sequence[int]) -> ToolAnswer:
    parser, content, calls = ToolCallParser(), "", []
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    answers = [parser.push(text[start:end]) for start, end in itertools.pairwise(edges)]
    for answer in (*answers, parser.finish()):
        content += answer.content
        calls.extend(answer.calls)
    return ToolAnswer(content, tuple(joined_calls(calls)))


def whole(text: str) -> ToolAnswer:
    answer = AnswerParser(tools=ToolCallParser()).finish(text)
    return ToolAnswer(answer.content, tuple(joined_calls(answer.calls)))


def told(answer: ToolAnswer) -> tuple[str, list[tuple[str, str]]]:
    """Without the ids, which are drawn."""
    return answer.content, [(call.name, call.arguments) for call in answer.calls]


def test_calls_are_taken_out_of_the_text() -> None:
    answer = whole(f"Let me see.\n{CALL}\n{OTHER}")
    assert answer.content == "Let me see."
    assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == [
        ("get_weather", {"city": "Zürich"}),
        ("get_time", {}),
    ]
    assert len({call.call_id for call in answer.calls}) == 2
    assert all(call.call_id.startswith("call_") for call in answer.calls)


@pytest.mark.parametrize(
    "text",
    [
        "plain <b>text</b> ",
        "<tool_call>not JSON</tool_call>",
        '<tool_call>{"name": "f", "argume',
        '<tool_call>{"name": "f", "arguments": ',
        '<tool_call>{"arguments": {"a": "two\nlines"}, "name": "f"}</tool_call>',
        '<tool_call>{"arguments": {"a": NaN}, "name": "f"}</tool_call>',
        '<tool_call>{"arguments": {}, "name": "\\ud800"}</tool_call>',
        '<tool_call>{"name": 1, "arguments": {"a": "\\ud800"}}</tool_call>',
        '<tool_call>{"arguments": ' + '{"a":' * 101 + "1" + "}" * 101 + ', "name": "f"}</tool_call>',
        '<tool_call>{"arguments": ' + '{"\\ud800":' * 5000 + "1" + "}" * 5000 + ', "name": "f"}</tool_call>',
        '<tool_call>{"name": "f", "arguments": "{}"}</tool_call>',
        "<tool_call>" * 3,
        "ends in <tool_c",
        '"\\',
        "",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert told(whole(text)) == (text, [])
    assert told(in_pieces(text, range(len(text)))) == (text, [])


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize(
    "arguments",
    [
        {"text": "</tool_call>"},
        {"text": "<tool_call>"},
        {"</tool_call>": {"deep": ["</tool_call>", '"</tool_call>"', "\\", '\\"', "}]}"]}},
        {"text": json.dumps({"inner": json.dumps({"innermost": '"}</tool_call>'})})},
        {"text": call_of({"text": "</tool_call>"})},
        {"text": "line\nline\ttab 中é😀\u2028"},
        MARKED,
        {},
    ],
)
def test_marks_within_arguments_are_words(arguments: dict[str, object], ascii_only: bool) -> None:
    written = call_of(arguments, ensure_ascii=ascii_only)
    text = f"see {written}\n{written} and{CALL}"
    for answer in (whole(text), in_pieces(text, range(len(text)))):
        assert answer.content == "see \n and"
        assert [json.loads(call.arguments) for call in answer.calls] == [arguments, arguments, {"city": "Zürich"}]


@pytest.mark.parametrize(
    "arguments", ['{"a":1.0,"b":12345678901234567890123, "a":2}', '{ "a" : 1e300 }', '{\n  "a": "é"\n}']
)
def test_arguments_are_told_as_they_were_written(arguments: str) -> None:
    (call,) = whole(f'<tool_call>{{"name": "f", "arguments": {arguments} }}</tool_call>').calls
    assert call.arguments == arguments


@pytest.mark.parametrize("key", ["arguments", "parameters"])
@pytest.mark.parametrize(
    "arguments", ['{"a":"\\ud83d"}', '{"\\uDe00\\ud83d": [{"b": "é\\ud83d\\ude00\\udfff </tool_call>"}, 1.5, null]}']
)
def test_half_a_surrogate_pair_stays_an_escape(arguments: str, key: str) -> None:
    text = f'<tool_call>{{"name":"f","{key}":{arguments}}}</tool_call>'
    for answer in (whole(text), in_pieces(text, range(len(text)))):
        (call,) = answer.calls
        assert (answer.content, call.name) == ("", "f")
        assert json.loads(call.arguments) == json.loads(arguments)
        assert msgspec.json.decode(msgspec.json.encode(call), type=ToolCall) == call


@pytest.mark.parametrize("end", ["", "\n", "\n</tool", "</tool_call"])
def test_a_call_whose_end_mark_is_missing_is_one(end: str) -> None:
    text = '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}' + end
    assert told(whole(text)) == told(in_pieces(text, range(len(text)))) == ("", [("f", '{"a": "</tool_call>"}')])


@pytest.mark.parametrize(
    "arguments", ["{", '{"a": "</tool_call>', '{"a": "two\nlines"}', '{"a": NaN}', '{"a": ' * 5000 + "1" + "}" * 5000]
)
def test_arguments_may_be_cut_off_or_be_no_json(arguments: str) -> None:
    text = f'<tool_call>{{"name": "f", "arguments": {arguments}'
    assert told(whole(text)) == told(in_pieces(text, range(len(text)))) == ("", [("f", arguments)])


@pytest.mark.parametrize("before", ["", f"{CALL}\n"])
@pytest.mark.parametrize("num_chars", [0, 1, 9, 15, 20])
def test_of_an_answer_of_nothing_but_calls_no_beginning_of_one_is_content(before: str, num_chars: int) -> None:
    text = before + OTHER[:num_chars]
    calls = whole(before).calls
    for edges in ([0, len(text)], range(len(text) + 1)):
        parser = ToolCallParser(has_content=False)
        pieces = [parser.push(text[begin:end]) for begin, end in itertools.pairwise(edges)]
        answers = [*pieces, parser.finish()]
        assert "".join(answer.content for answer in answers) == ""
        made = joined_calls(call for answer in answers for call in answer.calls)
        assert [(call.name, call.arguments) for call in made] == [(call.name, call.arguments) for call in calls]


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('<tool_call>{"type": "function", "name": "f", "arguments": {"a": 1}, "id": "x"}</tool_call>', ""),
        ('<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', ""),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}\n</tool_call> so', "so"),
        ('<tool_call>{"name": "f", "arguments": {"a": 1}, "b": 2, "c": {"d": "}"}}</tool_call> so', "so"),
    ],
)
def test_other_objects_of_a_name_and_arguments(text: str, content: str) -> None:
    assert told(whole(text)) == told(in_pieces(text, range(len(text)))) == (content, [("f", '{"a": 1}')])


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (f"\n {CALL} \n{CALL}\n", ""),
        (f" a \n{CALL}\n b \n", " a \n\n b"),
        (f"\n{CALL}\n a", "a"),
    ],
)
def test_there_is_no_space_between_calls_and_the_ends_of_the_content(text: str, content: str) -> None:
    assert whole(text).content == content
    assert in_pieces(text, range(len(text))).content == content


PARTS = st.sampled_from(
    [
        CALL,
        OTHER,
        '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"a": 1}',
        ', "id": "x"}',
        call_of(MARKED),
        call_of(MARKED, ensure_ascii=False),
        "<tool_call>",
        "</tool_call>",
        '<tool_call>{"name": "f", "arguments": {"a": "',
        '"}}',
        "<tool",
        "\\",
        '"',
        "{",
        "}",
        " ",
        "\n",
        "wörds",
        "😀",
    ]
)


@given(parts=st.lists(PARTS, max_size=8), cuts=st.lists(st.integers(0, 400), max_size=12))
def test_pieces_make_no_difference(parts: list[str], cuts: list[int]) -> None:
    text = "".join(parts)
    assert told(in_pieces(text, cuts)) == told(in_pieces(text, range(len(text)))) == told(whole(text))


@given(
    value=st.recursive(
        st.text() | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_any_argument_arrives(value: object) -> None:
    (call,) = whole(call_of({"value": value}, ensure_ascii=False)).calls
    assert json.loads(call.arguments) == {"value": value}
