"""Tools of the OpenAI API: what a request offers, and the grammar of a call that it demands.

Pure: no I/O, no HTTP.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from orchestrator.requests.tools.tool_calls import ToolCallParser
from orchestrator.requests.tools.tool_forms.form import ToolForm
from orchestrator.requests.tools.tool_forms.hermes import HERMES
from pilotfish.errors import InvalidRequestError
from pilotfish.structured.bounds import check_numbers
from pilotfish.structured.grammar import check_text, json_rule, lark_rule
from pilotfish.types import Grammar, GrammarKind

MAX_TOOLS = 128
"""OpenAI's limit."""
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_OPENING_KEYS = {
    *("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "dependentRequired"),
    *("unevaluatedProperties", "propertyNames", "minProperties"),
}
"""Keys of schemas that may want more than their `properties`."""

Choice = Literal["none", "auto", "required"]


@dataclass(frozen=True)
class Tool:
    """A function that the model may call."""

    name: str
    parameters: Mapping[str, Any]
    """JSON schema of its arguments, with decimals for what is no integer."""
    definition: Mapping[str, Any]
    """The definition as the request has it: what the chat template shows."""


@dataclass(frozen=True)
class ToolUse:
    """What a request says about tools."""

    tools: tuple[Tool, ...] = ()
    choice: Choice = "none"
    is_named: bool = False
    """Whether tool_choice names the only one of `tools`: OpenAI then ends with `stop` instead of `tool_calls`."""
    allows_several: bool = True
    """Whether an answer may have more than one call: parallel_tool_calls."""
    offered: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """Definitions of all tools for the chat template, whatever the choice."""
    form: ToolForm = HERMES
    """The model's form of calls."""

    @property
    def max_calls(self) -> int | None:
        """The most calls of one answer; None: any number."""
        return None if self.allows_several else 1

    @cached_property
    def grammar(self) -> Grammar | None:
        """What the answer must be when a call is demanded; None when it may be text. Raises InvalidRequestError."""
        if self.choice != "required":
            return None
        return Grammar(GrammarKind.LARK, "\n".join(("start: calls", *self._call_rules())))

    def grammar_beside(self, answer: Grammar) -> Grammar:
        """Calls, or else an answer that follows a grammar of its own: the model chooses. Raises InvalidRequestError."""
        rules = ("start: calls | answer", *self._call_rules(), *self._answer_rules(answer))
        return Grammar(GrammarKind.LARK, "\n".join(rules))

    def framed(self, answer: Grammar) -> Grammar:
        """The answer with what the model's form has before it."""
        if not self.form.answer_begin:
            return answer
        return Grammar(GrammarKind.LARK, "\n".join(("start: answer", *self._answer_rules(answer))))

    def _answer_rules(self, answer: Grammar) -> tuple[str, str]:
        return f"answer: {self.form.literal(self.form.answer_begin)} body", f"body: {lark_rule(answer)}"

    def parser(self) -> ToolCallParser | None:
        """A parser of one answer; None: it has no calls."""
        if self.choice == "none":
            return None
        names = [tool.name for tool in self.tools]
        return ToolCallParser(self.form, names, has_content=self.choice != "required")

    def _call_rules(self) -> list[str]:
        literal, written = self.form.literal, self.form.written
        several = f" ({literal(written.between)} call)*" if self.allows_several else ""
        # A rule for each tool, so that references in its schema start where they did.
        calls = " | ".join(f"call_{index}" for index in range(len(self.tools)))
        rules = [f"calls: {literal(written.begin)} call{several} {literal(written.end)}", f"call: {calls}"]
        for index, tool in enumerate(self.tools):
            before, _, after = written.call.replace("$name", tool.name).partition("$arguments")
            rules.append(f"call_{index}: {literal(before)} arguments_{index} {literal(after)}")
            schema = {"type": "object", **_closed(tool.parameters)}
            rules.append(f"arguments_{index}: {json_rule(schema)}")
        check_text(Grammar(GrammarKind.LARK, "\n".join(rules)), "tools")  # first: it bounds what the next check takes
        for tool in self.tools:
            check_numbers(tool.parameters, "tools")
        return rules


NO_TOOLS = ToolUse()


def tool_use(
    tools: Sequence[Mapping[str, Any]] | None,
    tool_choice: str | Mapping[str, Any] | None,
    parallel_tool_calls: bool | None = None,
) -> ToolUse:
    """The request's fields, checked. Raises InvalidRequestError, with the parameter."""
    if not tools:
        if tool_choice not in (None, "none", "auto"):
            raise InvalidRequestError("tool_choice needs tools of type function", param="tool_choice")
        return NO_TOOLS
    if len(tools) > MAX_TOOLS:
        raise InvalidRequestError(f"{len(tools)} tools; at most {MAX_TOOLS} are allowed", param="tools")
    if isinstance(tool_choice, Mapping) and "allowed_tools" in tool_choice:
        tools, tool_choice = _allowed(tools, tool_choice["allowed_tools"])
    known = tuple(_tool(index, tool) for index, tool in enumerate(tools))
    names = [tool.name for tool in known]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InvalidRequestError(f"two tools are named {repeated!r}", param="tools")
    offered = tuple(tool.definition for tool in known)
    several = parallel_tool_calls is not False
    match tool_choice:
        case None | "auto":
            return ToolUse(known, "auto", allows_several=several, offered=offered)
        case "none":
            return ToolUse(known, "none", allows_several=several, offered=offered)
        case "required":
            return ToolUse(known, "required", allows_several=several, offered=offered)
        case {"type": "function", "function": {"name": str(name)}}:
            chosen = tuple(tool for tool in known if tool.name == name)
            if not chosen:
                raise InvalidRequestError(
                    f"tool_choice names {name!r}; the tools are {', '.join(names)}", param="tool_choice"
                )
            return ToolUse(chosen, "required", is_named=True, allows_several=False, offered=offered)
        case _:
            raise InvalidRequestError(
                "tool_choice must be none, auto, required or name a function of tools", param="tool_choice"
            )


def _allowed(tools: Sequence[Mapping[str, Any]], allowed: Mapping[str, Any]) -> tuple[Sequence[Mapping[str, Any]], str]:
    """(the tools that tool_choice allows, its mode). The others are not offered: a prompt forbids no call."""
    names = [tool["function"]["name"] for tool in allowed["tools"]]
    offered = {tool["function"]["name"]: tool for tool in tools}
    unknown = [name for name in names if name not in offered]
    if unknown or not names:
        wrong = f"allows {unknown[0]!r}" if unknown else "allows none"
        raise InvalidRequestError(f"tool_choice {wrong}; the tools are {', '.join(offered)}", param="tool_choice")
    return [tool for name, tool in offered.items() if name in names], allowed["mode"]


def _closed(schema: Any) -> Any:
    """Objects hold nothing but the properties that their schema names, unless it says so or its parts may name more."""
    if not isinstance(schema, Mapping) or _OPENING_KEYS & schema.keys():
        return schema
    closed = dict(schema)
    if "items" in schema:
        closed["items"] = _closed(schema["items"])
    if isinstance(properties := schema.get("properties"), Mapping):
        closed["properties"] = {name: _closed(inner) for name, inner in properties.items()}
        required = schema.get("required", [])
        if isinstance(required, list) and all(str(name) in properties for name in required):
            closed.setdefault("additionalProperties", False)
    return closed


def _tool(index: int, definition: Mapping[str, Any]) -> Tool:
    param = f"tools[{index}]"
    match definition:
        case {"type": "function", "function": {"name": str(name), **rest}}:
            pass
        case _:
            raise InvalidRequestError(f"{param} must be of type function and have a function with a name", param=param)
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"{param}: the name {name!r} must be 1 to 64 letters, digits, underscores and dashes", param=param
        )
    parameters = rest.get("parameters") or _NO_PARAMETERS
    if not isinstance(parameters, Mapping):
        raise InvalidRequestError(f"{param}: parameters must be a JSON schema", param=param)
    try:
        shown = json.loads(json.dumps(definition, default=float, allow_nan=False))
    except ValueError:
        raise InvalidRequestError(f"{param} holds a number beyond what a float can be", param=param) from None
    return Tool(name, parameters, shown)
