"""Tool calls in an answer's text. Pure: no I/O, no HTTP."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass

from pilotfish.models.tool_prompt import CALL_BEGIN, CALL_END
from pilotfish.types import ToolCall

_BEGIN, _END = CALL_BEGIN.strip(), CALL_END.strip()


@dataclass(frozen=True)
class ToolAnswer:
    """An answer with its calls taken out."""

    content: str
    calls: tuple[ToolCall, ...] = ()


class ToolCallParser:
    """Finds calls in text that comes in pieces. A piece that may begin a call is held back until that is known."""

    def __init__(self) -> None:
        self._text = ""
        self._is_in_call = False

    def push(self, text: str) -> ToolAnswer:
        """The content and the calls that are certain now."""
        self._text += text
        content, calls = [], []
        while True:
            if self._is_in_call:
                body, end, rest = self._text.partition(_END)
                if not end:
                    break
                self._text, self._is_in_call = rest, False
                call = _parse_call(body)
                if call is None:
                    content.append(f"{_BEGIN}{body}{end}")  # no call after all: not ours to swallow
                else:
                    calls.append(call)
                continue
            before, begin, rest = self._text.partition(_BEGIN)
            if not begin:
                num_held = _num_held(self._text, _BEGIN)
                content.append(self._text[: len(self._text) - num_held])
                self._text = self._text[len(self._text) - num_held :]
                break
            content.append(before)
            self._text, self._is_in_call = rest, True
        return ToolAnswer("".join(content), tuple(calls))

    def finish(self) -> ToolAnswer:
        """What is left when no more comes; a call that was cut off is text."""
        text, self._text = self._text, ""
        was_in_call, self._is_in_call = self._is_in_call, False
        call = _parse_call(text) if was_in_call else None
        if call is not None:
            return ToolAnswer("", (call,))
        return ToolAnswer(f"{_BEGIN}{text}" if was_in_call else text)


def split_tool_calls(text: str) -> ToolAnswer:
    """A whole answer. Space around calls is dropped."""
    parser = ToolCallParser()
    first, last = parser.push(text), parser.finish()
    calls = (*first.calls, *last.calls)
    content = first.content + last.content
    return ToolAnswer(content.strip() if calls else content, calls)


def _parse_call(body: str) -> ToolCall | None:
    """None when it is no call."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    match value:
        case {"name": str(name), "arguments": dict() as arguments} | {
            "name": str(name),
            "parameters": dict() as arguments,
        }:
            return ToolCall(f"call_{secrets.token_hex(12)}", name, json.dumps(arguments, ensure_ascii=False))
    return None


def _num_held(text: str, mark: str) -> int:
    """Characters at the end that may begin the mark."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if mark.startswith(text[-n:])), 0)
