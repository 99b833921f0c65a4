"""Tools for models whose template knows none, and for those whose template does."""

import json

from pilotfish.chat import ChatMessage, ToolCall
from pilotfish.models.tokens.chat_template import ChatTemplate
from pilotfish.models.tokens.tool_prompt import fold_tools

TOOL = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
TALK = [
    ChatMessage("system", "Be brief."),
    ChatMessage("user", "What time is it?"),
    ChatMessage("assistant", "", (ToolCall("call_1", "get_time", '{"zone": "UTC"}'),)),
    ChatMessage("tool", "12:00", tool_call_id="call_1"),
]


def test_tools_are_told_in_the_system_message() -> None:
    folded = fold_tools(TALK, [TOOL])
    assert [message.role for message in folded] == ["system", "user", "assistant", "user"]
    assert folded[0].content.startswith("Be brief.\n\n")
    assert json.dumps(TOOL) in folded[0].content
    assert folded[2].content == '<tool_call>\n{"name": "get_time", "arguments": {"zone": "UTC"}}\n</tool_call>'
    assert folded[3].content == "<tool_response>\n12:00\n</tool_response>"
    assert not any(message.tool_calls or message.tool_call_id for message in folded)


def test_a_conversation_without_system_message_gets_one_for_the_tools_only() -> None:
    assert [message.role for message in fold_tools(TALK[1:2], [TOOL])] == ["system", "user"]
    assert fold_tools(TALK[1:2], []) == TALK[1:2]


def test_a_template_that_knows_tools_gets_them_as_they_are() -> None:
    template = ChatTemplate("{% if tools %}{{ tools | tojson }}{% endif %}{{ messages | tojson }}", {})
    tools, messages = template.render(TALK, [TOOL]).split("]", 1)
    assert json.loads(tools + "]") == [TOOL]
    turns = json.loads(messages)
    call = turns[2]["tool_calls"][0]
    assert call == {"type": "function", "id": "call_1", "function": {"name": "get_time", "arguments": {"zone": "UTC"}}}
    assert turns[3] == {"role": "tool", "content": "12:00", "tool_call_id": "call_1"}


def test_a_template_that_knows_none_is_told_in_words() -> None:
    template = ChatTemplate("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}", {})
    text = template.render(TALK, [TOOL])
    assert "[tool]" not in text
    assert "get_time" in text
    assert "<tool_response>" in text


def test_arguments_that_are_not_json_are_text() -> None:
    template = ChatTemplate("{% if tools %}{% endif %}{{ messages | tojson }}", {})
    written = template.render([ChatMessage("assistant", "", (ToolCall("c", "get_time", "soon"),))])
    assert json.loads(written)[0]["tool_calls"][0]["function"]["arguments"] == "soon"
