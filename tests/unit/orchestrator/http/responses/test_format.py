"""Events of an answer whose words and calls come in any pieces."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.http.responses.format import ResponseEvents
from orchestrator.http.responses.request import ResponsesRequest
from orchestrator.requests.reasoning import AnswerParser
from orchestrator.requests.tools.tool_calls import ToolCallParser

TEXT = 'So: <tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\nDone, then <tool_call>{"name": "g", '


@pytest.mark.parametrize("size", [1, 3, 7, 40, 41, 55, 60, 200])
def test_words_behind_a_call_come_after_its_arguments(size: int) -> None:
    text = TEXT + '"arguments": {}}</tool_call>'
    answer_format: Any = SimpleNamespace(response=lambda *_: None, request=ResponsesRequest(input=""))
    events = ResponseEvents(answer_format, AnswerParser(None, ToolCallParser()))
    chunks: list[Any] = [SimpleNamespace(text=text[at : at + size], token_ids=()) for at in range(0, len(text), size)]
    data = b"".join(map(events.chunk, chunks))
    told: list[dict[str, Any]] = [
        json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: ")
    ]
    deltas = [event["delta"] for event in told if event["type"] == "response.function_call_arguments.delta"]
    assert "".join(deltas) == '{"a": 1}{}'
    words = [event["delta"] for event in told if event["type"] == "response.output_text.delta"]
    assert "".join(words).split() == ["So:", "Done,", "then"]
