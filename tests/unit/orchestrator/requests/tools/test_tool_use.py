"""Tools: what requests may say, and the grammar of a demanded call."""

import json
from typing import Any

import pytest
from llguidance import LLTokenizer

from orchestrator.requests.tools.tool_use import MAX_TOOLS, ToolUse, tool_use
from pilotfish.errors import InvalidRequestError
from pilotfish.structured.grammar import MAX_GRAMMAR_CHARS, compile_grammar
from pilotfish.types import Grammar, GrammarKind
from tests.support.small_vocabulary import is_whole

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"$ref": "#/$defs/city"}},
            "required": ["city"],
            "additionalProperties": False,
            "$defs": {"city": {"type": "string", "maxLength": 20}},
        },
    },
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bern"}}\n</tool_call>'
TIME: dict[str, Any] = {"type": "function", "function": {"name": "get_time"}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def test_what_many_tools_say_of_themselves_takes_no_room_in_the_grammar() -> None:
    def described(index: int) -> dict[str, Any]:
        city = {"type": "string", "maxLength": 20, "description": "fish " * 400}
        parameters = {"type": "object", "properties": {"city": city}, "required": ["city"], "description": "fish " * 99}
        return {"type": "function", "function": {"name": f"tool_{index}", "parameters": parameters}}

    grammar = tool_use([described(index) for index in range(MAX_TOOLS)], "required").grammar
    assert grammar is not None
    assert is_whole(grammar, '<tool_call>\n{"name": "tool_7", "arguments": {"city": "Bern"}}\n</tool_call>')


@pytest.mark.parametrize(
    ("choice", "expected"), [(None, "auto"), ("auto", "auto"), ("none", "none"), ("required", "required")]
)
def test_choices(choice: str | None, expected: str) -> None:
    use = tool_use([WEATHER, TIME], choice)
    assert (use.choice, use.is_named, use.offered) == (expected, False, (WEATHER, TIME))
    assert (use.grammar is None) == (expected != "required")


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_only_tools_that_are_allowed_are_offered(mode: str) -> None:
    def use(*names: str) -> ToolUse:
        tools = [{"type": "function", "function": {"name": name}} for name in names]
        allowed = {"mode": mode, "tools": tools}
        return tool_use([WEATHER, TIME], {"type": "allowed_tools", "allowed_tools": allowed})

    assert (use("get_time").choice, use("get_time").offered) == (mode, (TIME,))
    assert use("get_time", "get_weather").offered == (WEATHER, TIME)
    for names in ((), ("get_time", "get_tide")):
        with pytest.raises(InvalidRequestError, match=r"the tools are get_weather, get_time") as caught:
            use(*names)
        assert caught.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("answer", "accepted", "refused"),
    [
        (Grammar(GrammarKind.JSON_SCHEMA, '{"type": "integer"}'), "7", "hello"),
        (Grammar(GrammarKind.JSON_SCHEMA, "true"), "[7]", "hello"),
        (Grammar(GrammarKind.JSON_OBJECT), '{"a": 1}', "7"),
        (Grammar(GrammarKind.REGEX, r"a/b\/\d\n?"), "a/b/7", "a/b/c"),
        (Grammar(GrammarKind.REGEX, ""), "", "a"),
        (Grammar(GrammarKind.LARK, 'start: call "!"\ncall: "a" | "}"'), "}!", "a"),
    ],
)
def test_a_call_or_else_an_answer_with_a_grammar_of_its_own(answer: Grammar, accepted: str, refused: str) -> None:
    grammar = tool_use([WEATHER], "auto", parallel_tool_calls=False).grammar_beside(answer)
    assert is_whole(grammar, accepted)
    assert is_whole(grammar, CALL)
    for text in (refused, CALL + (accepted or "!"), f"{CALL}\n{CALL}", CALL.replace("Bern", "Bern" * 9)):
        assert not is_whole(grammar, text), text


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Grammar(GrammarKind.REGEX, "a" * (MAX_GRAMMAR_CHARS + 1)), "at most"),
        (Grammar(GrammarKind.JSON_SCHEMA, f'"{"a" * MAX_GRAMMAR_CHARS}"'), "at most"),
        (Grammar(GrammarKind.REGEX, "a\\"), "backslash"),
    ],
)
def test_a_grammar_beside_calls_is_within_the_same_bounds(answer: Grammar, told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told) as caught:
        tool_use([WEATHER], "auto").grammar_beside(answer)
    assert caught.value.param == "grammar"


@pytest.mark.parametrize(
    ("choice", "accepted", "refused"),
    [
        ("required", (CALL, f"{CALL}\n{CALL}"), ("7", "hello", CALL.replace("Bern", "Bern" * 9))),
        (NAMED, (CALL,), ("7", f"{CALL}\n{CALL}", CALL.replace("city", "town"))),
    ],
)
def test_a_demanded_call_is_all_that_can_be_said(
    choice: Any, accepted: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    grammar = tool_use([WEATHER], choice).grammar
    assert grammar is not None
    for texts, expected in ((accepted, True), (refused, False)):
        for text in texts:
            assert is_whole(grammar, text) == expected, text


@pytest.mark.parametrize(
    ("tools", "choice", "told", "param"),
    [
        ([], "required", "needs tools", "tool_choice"),
        ([WEATHER], "always", "must be none", "tool_choice"),
        ([WEATHER], {"type": "function", "function": {"name": "other"}}, "get_weather", "tool_choice"),
        ([{"type": "web_search"}], None, "type function", "tools[0]"),
        ([WEATHER, {"type": "function", "function": {"name": "a b"}}], None, "letters", "tools[1]"),
        ([{"type": "function", "function": {"name": "f", "parameters": [1]}}], None, "JSON schema", "tools[0]"),
        ([WEATHER, WEATHER], None, "two tools", "tools"),
        ([TIME] * (MAX_TOOLS + 1), None, "at most", "tools"),
    ],
)
def test_mistakes_are_named(tools: list[dict[str, Any]], choice: Any, told: str, param: str) -> None:
    with pytest.raises(InvalidRequestError, match=told) as caught:
        tool_use(tools, choice)
    assert caught.value.param == param


def test_a_bad_schema_is_found_before_anything_starts() -> None:
    bad = json.loads(json.dumps(WEATHER))
    bad["function"]["parameters"]["properties"]["city"] = {"type": "array", "uniqueItems": True}
    grammar = tool_use([bad], "required").grammar
    assert grammar is not None
    with pytest.raises(InvalidRequestError, match="uniqueItems"):
        compile_grammar(LLTokenizer("byte"), grammar)


CITY = {"type": "object", "properties": {"city": {"const": "a"}}, "required": ["city"]}


@pytest.mark.parametrize(
    ("parameters", "arguments", "accepted"),
    [
        (CITY, '{"city": "a", "b": 1}', False),
        ({**CITY, "additionalProperties": True}, '{"city": "a", "b": 1}', True),
        ({**CITY, "required": ["b"]}, '{"city": "a", "b": 1}', True),
        ({"properties": {"a": {"type": "array", "items": CITY}}}, '{"a": [{"city": "a", "b": 1}]}', False),
        ({"properties": {"a": {"type": "array", "items": CITY}}}, '{"a": [{"city": "a"}]}', True),
        ({"properties": {"a": {}}}, "7", False),
        ({"allOf": [CITY, {"properties": {"b": {"const": 1}}}]}, '{"city": "a", "b": 1}', True),
        ({"type": "object"}, '{"b": 1}', True),
    ],
)
def test_arguments_hold_nothing_that_the_schema_does_not_name(
    parameters: dict[str, Any], arguments: str, accepted: bool
) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    grammar = tool_use([tool], "required").grammar
    assert grammar is not None
    call = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'
    assert is_whole(grammar, call) == accepted
