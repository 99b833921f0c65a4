"""Tool calls in an answer's text. Pure: no I/O, no HTTP."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec

from orchestrator.requests.json_object_end import JsonObjectEnd, NotJsonError
from orchestrator.requests.tool_forms.form import ToolForm
from orchestrator.requests.tool_forms.hermes import HERMES
from pilotfish.models.tokens.tool_prompt import parse_arguments
from pilotfish.structured.bounds import check_json_depth
from pilotfish.types import ToolCall

_MAX_HEAD_CHARS = 256
"""Between a begin mark and the JSON object."""
_JSON_SPACE = " \t\n\r"


@dataclass(frozen=True)
class ToolAnswer:
    """An answer with its calls taken out, and what was thought before it."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""


class ToolCallParser:
    """Finds calls in text that comes in pieces; how it is cut makes no difference to what is found.

    A call is the form's begin mark, its head, a JSON object and one of its ends. Marks within the object's strings are
    words of the arguments. A begin mark that nothing such follows is text, and what may begin a call is held back until
    that is known. So is space at the end of the content: in an answer with calls none is told before the first word and
    after the last one.
    """

    def __init__(self, form: ToolForm = HERMES, names: Collection[str] = ()) -> None:
        """names: of tools that are offered. Where no mark begins it, a call of another is text."""
        self._form = form
        self._names = names
        self._text = ""
        """What is not told yet; within a call what follows its beginning."""
        self._begin: str | None = None
        """What the call began with that the text is in; None: in none."""
        self._name = ""
        """That its head told."""
        self._object: JsonObjectEnd | None = None
        """Behind the head."""
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
        while self._begin is not None or self._enter(content):
            assert self._begin is not None
            try:
                if not self._has_object(is_over=is_over):
                    return ToolAnswer("".join(content), tuple(calls))
                call = self._next_call(is_over=is_over)
            except NotJsonError:
                content.append(self._worded(self._begin))  # no call after all: not ours to swallow
                self._has_words = True
                self._begin = None
            else:
                if call is None:
                    return ToolAnswer("".join(content), tuple(calls))
                calls.append(call)
                self._has_calls = True
            self._object = None
        num_told = len(self._text) - (0 if is_over else num_held(self._text, self._form.begin))
        told, self._text = self._text[:num_told], self._text[num_told:]
        content.append(self._worded(told))
        return ToolAnswer("".join(content), tuple(calls))

    def _enter(self, content: list[str]) -> bool:
        """Where a call may begin, take what is before it."""
        if self._form.is_bare and not self._has_words and not self._has_calls and self._text.lstrip().startswith("{"):
            self._begin = ""
            return True
        before, mark, after = self._text.partition(self._form.begin)
        if mark:
            content.append(self._worded(before))
            self._begin, self._text = mark, after
        return bool(mark)

    def _has_object(self, *, is_over: bool) -> bool:
        """Take the head off the text. Raises NotJsonError when none is there."""
        if self._object is not None:
            return True
        start = self._text.find("{")
        if start < 0 and len(self._text) <= _MAX_HEAD_CHARS and not is_over:
            return False
        head = self._form.head.fullmatch(self._text, 0, start) if 0 <= start <= _MAX_HEAD_CHARS else None
        if head is None:
            raise NotJsonError
        self._name = head.groupdict().get("name", "")
        self._begin, self._text = f"{self._begin}{head.group()}", self._text[start:]
        self._object = JsonObjectEnd()
        return True

    def _next_call(self, *, is_over: bool) -> ToolCall | None:
        """Take the call off the text; None while it may go on. Raises NotJsonError when it is no call."""
        assert self._object is not None
        end = self._object.find(self._text)
        if end is None:
            if is_over:
                raise NotJsonError
            return None
        rest = self._text[end:].lstrip(_JSON_SPACE)
        mark = next((mark for mark in self._form.ends if rest.startswith(mark) or mark.startswith(rest)), None)
        if mark is None:
            raise NotJsonError
        is_cut = not rest.startswith(mark)
        if is_cut and not is_over:
            return None
        call = _parse_call(self._form, self._name, self._text[:end])
        if not (self._begin or "").strip() and call.name not in self._names:
            raise NotJsonError
        has_next = self._form.ends[mark] and not is_cut
        self._begin = mark if has_next else None
        self._text = "" if is_cut else rest.removeprefix(mark) if mark else self._text[end:]
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


def _parse_call(form: ToolForm, name: str, text: str) -> ToolCall:
    """name: where the form has it before the object. Raises NotJsonError when it is no call, or one whose arguments we
    would refuse when the client sends it back."""
    try:
        name, arguments = (name, text) if name else _written_call(text)
        name.encode()
        check_json_depth(arguments.encode(), "the JSON in arguments")
        parse_arguments(arguments)
    except (ValueError, RecursionError):
        raise NotJsonError from None
    return ToolCall(form.new_id(), name, arguments)


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
