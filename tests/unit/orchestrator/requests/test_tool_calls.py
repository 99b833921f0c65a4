"""Calls are found in text however it is cut into pieces."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.requests.tool_calls import ToolCallParser, split_tool_calls

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
OTHER = '<tool_call>{"name": "get_time", "parameters": {}}</tool_call>'


def test_calls_are_taken_out_of_the_text() -> None:
    answer = split_tool_calls(f"Let me see.\n{CALL}\n{OTHER}")
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
        '<tool_call>{"name": "f"}</tool_call> and more',
        "<tool_call>[1, 2]</tool_call>",
        '<tool_call>{"name": "f", "argume',
        "ends in <tool_c",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert split_tool_calls(text).content == text
    assert split_tool_calls(text).calls == ()


def test_a_call_whose_end_mark_is_missing_counts_once_the_answer_is_over() -> None:
    parser = ToolCallParser()
    assert parser.push('<tool_call>{"name": "f", "arguments": {"a": 1}}').calls == ()
    (call,) = parser.finish().calls
    assert (call.name, call.arguments) == ("f", '{"a": 1}')


@given(cuts=st.lists(st.integers(0, 200), max_size=12))
def test_pieces_make_no_difference(cuts: list[int]) -> None:
    text = f"a < b <tool{CALL} between <tool_call> {OTHER}x"
    parser, content, calls = ToolCallParser(), "", []
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in itertools.pairwise(edges):
        answer = parser.push(text[start:end])
        content += answer.content
        calls.extend(answer.calls)
    last = parser.finish()
    content += last.content
    calls.extend(last.calls)
    whole = ToolCallParser()
    first, rest = whole.push(text), whole.finish()
    assert content == first.content + rest.content
    assert [(call.name, call.arguments) for call in calls] == [
        (call.name, call.arguments) for call in (*first.calls, *rest.calls)
    ]
    assert "get_weather" in {call.name for call in calls}
