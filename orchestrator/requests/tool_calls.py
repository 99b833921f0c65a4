"""Tool calls in an answer's text. Pure: no I/O, no HTTP."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any

import msgspec

from orchestrator.requests.json_object_end import JsonObjectEnd, NotJsonError
from pilotfish.models.tokens.tool_prompt import CALL_BEGIN, CALL_END, parse_arguments
from pilotfish.structured.bounds import check_json_depth
from pilotfish.types import ToolCall

_BEGIN, _END = CALL_BEGIN.strip(), CALL_END.strip()
_JSON_SPACE = " \t\n\r"


@dataclass(frozen=True)
class ToolAnswer:
    """An answer with its calls taken out, and what was thought before it."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""


class ToolCallParser:
    """Finds calls in text that comes in pieces; how it is cut makes no difference to what is found.

    A call is the begin mark, a JSON object with a name and arguments, and the end mark, with JSON's space between them.
    Marks within the object's strings are words of the arguments. A begin mark that no such object follows is text, and
    what may begin a call is held back until that is known. So is space at the end of the content: in an answer with
    calls none is told before the first word and after the last one.
    """

    def __init__(self) -> None:
        self._text = ""
        """What is not told yet; within a call what follows the begin mark."""
        self._object: JsonObjectEnd | None = None
        """Of the call that the text is in."""
        self._space = ""
        self._has_words = self._has_calls = False

    def push(self, text: str) -> ToolAnswer:
        """The content and the calls that are certain now."""
        self._text += text
        return self._advance(is_over=False)

    def finish(self) -> ToolAnswer:
        """What is left when no more comes. A call whose end mark is missing is one; a call that was cut off is text."""
        rest = self._advance(is_over=True)
        return rest if self._has_calls else ToolAnswer(rest.content + self._space, rest.calls)

    def _advance(self, *, is_over: bool) -> ToolAnswer:
        content: list[str] = []
        calls: list[ToolCall] = []
        while self._object is not None or _BEGIN in self._text:
            if self._object is None:
                before, _, self._text = self._text.partition(_BEGIN)
                content.append(self._worded(before))
                self._object = JsonObjectEnd()
            try:
                call = self._next_call(self._object, is_over=is_over)
            except NotJsonError:
                content.append(self._worded(_BEGIN))  # no call after all: not ours to swallow
            else:
                if call is None:
                    return ToolAnswer("".join(content), tuple(calls))
                calls.append(call)
                self._has_calls = True
            self._object = None
        num_told = len(self._text) - (0 if is_over else num_held(self._text, _BEGIN))
        told, self._text = self._text[:num_told], self._text[num_told:]
        content.append(self._worded(told))
        return ToolAnswer("".join(content), tuple(calls))

    def _next_call(self, json_object: JsonObjectEnd, *, is_over: bool) -> ToolCall | None:
        """Take the call off the text; None while it may go on. Raises NotJsonError when it is no call."""
        end = json_object.find(self._text)
        rest = "" if end is None else self._text[end:].lstrip(_JSON_SPACE)
        if end is None or not rest.startswith(_END):
            if not _END.startswith(rest) or (end is None and is_over):
                raise NotJsonError
            if not is_over:
                return None
        call = _parse_call(self._text[:end])
        self._text = rest.removeprefix(_END) if rest.startswith(_END) else ""
        return call

    def _worded(self, text: str) -> str:
        """The part of some content that can be told: without space where it is the first or the last."""
        text = self._space + text
        told = text.rstrip()
        self._space = text[len(told) :]
        if told and not self._has_words:
            self._has_words = True
            if self._has_calls:
                told = told.lstrip()
        return told


class _WrittenCall(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = msgspec.Raw()
    parameters: msgspec.Raw = msgspec.Raw()
    """Another name for the arguments."""


def _parse_call(text: str) -> ToolCall:
    """Raises NotJsonError when it is no call, or one whose arguments we would refuse when the client sends it back."""
    try:
        name, arguments = _written_call(text)
        name.encode()
        check_json_depth(arguments.encode(), "the JSON in arguments")
        parse_arguments(arguments)
    except (ValueError, RecursionError):
        raise NotJsonError from None
    return ToolCall(f"call_{secrets.token_hex(12)}", name, arguments)


def _written_call(text: str) -> tuple[str, str]:
    """(name, arguments), the arguments as they were written. Raises ValueError, NotJsonError, RecursionError."""
    try:
        call = msgspec.json.decode(text.encode(), type=_WrittenCall)
    except msgspec.DecodeError:
        return _lone_surrogate_call(json.loads(text))
    for arguments in (bytes(call.arguments), bytes(call.parameters)):
        if arguments.startswith(b"{"):
            return call.name, arguments.decode()
    raise NotJsonError


def _lone_surrogate_call(call: Any) -> tuple[str, str]:
    """JSON may escape one half of a surrogate pair, which msgspec refuses; written anew it is escaped again."""
    if isinstance(call, dict) and isinstance(call.get("name"), str):
        for arguments in (call.get("arguments"), call.get("parameters")):
            if isinstance(arguments, dict):
                return call["name"], json.dumps(arguments, allow_nan=False)
    raise NotJsonError


def num_held(text: str, mark: str) -> int:
    """Characters at the end that may begin the mark."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if mark.startswith(text[-n:])), 0)
