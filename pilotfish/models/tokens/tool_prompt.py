"""Tools for models whose chat template knows none: described in the words of Hermes' format. Torch-free.

Hermes' format (NousResearch's, also Qwen's): a call is `<tool_call>`, a JSON object with `name` and
`arguments`, `</tool_call>`; its result is `<tool_response>`, text, `</tool_response>`.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from pilotfish.chat import ChatMessage, ToolCall

CALL_BEGIN, CALL_END = "<tool_call>\n", "\n</tool_call>"


def fold_tools(messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
    """The conversation with system, user and assistant turns of plain text alone."""
    folded = [_fold(message) for message in messages]
    if not tools:
        return folded
    if folded and folded[0].role == "system":
        system = f"{folded.pop(0).content}\n\n{_instructions(tools)}"
    else:
        system = _instructions(tools)
    return [ChatMessage("system", system), *folded]


def parse_arguments(arguments: str) -> Any:
    """A call's arguments as templates get them. Raises ValueError, RecursionError for what cannot be written as JSON
    again: NaN, and numbers that no float holds."""
    return json.loads(arguments, parse_constant=_finite, parse_float=_finite)


def parse_model_arguments(arguments: str) -> Any:
    """As `parse_arguments`, for what a model wrote. An object that is cut off is read as far as it was written, a last
    string's beginning included; what cannot be read otherwise stays text."""
    with contextlib.suppress(ValueError, RecursionError):
        return parse_arguments(arguments)
    if arguments.lstrip().startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            return parse_arguments(json.dumps(from_json(arguments, allow_partial="trailing-strings")))
    return arguments


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is no number that JSON can hold")
    return value


def _fold(message: ChatMessage) -> ChatMessage:
    if message.role == "tool":
        return ChatMessage("user", f"<tool_response>\n{message.content}\n</tool_response>")
    if not message.tool_calls:
        return ChatMessage(message.role, message.content, reasoning=message.reasoning, name=message.name)
    calls = "\n".join(_written(call) for call in message.tool_calls)
    content = f"{message.content}\n{calls}" if message.content else calls
    return ChatMessage(message.role, content, reasoning=message.reasoning, name=message.name)


def _written(call: ToolCall) -> str:
    return f'{CALL_BEGIN}{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}{CALL_END}'


def _instructions(tools: Sequence[Mapping[str, Any]]) -> str:
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return (
        "You may call one or more functions to help the user. These are their signatures:\n"
        f"<tools>\n{listed}\n</tools>\n\n"
        "To call a function, answer with its name and its arguments as a JSON object:\n"
        f'{CALL_BEGIN}{{"name": <function name>, "arguments": <arguments as a JSON object>}}{CALL_END}'
    )
