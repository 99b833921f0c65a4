"""Tool calls in an answer's text. Pure: no I/O, no HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from orchestrator.requests.tools.json_object_end import JsonObjectEnd
from orchestrator.requests.tools.tool_forms.form import ToolForm
from orchestrator.requests.tools.tool_forms.hermes import HERMES
from pilotfish.chat import ToolCall
from pilotfish.models.tokens.tool_prompt import parse_arguments
from pilotfish.structured.bounds import check_json

_MAX_HEAD_CHARS = 256
"""Characters between a begin mark and the arguments, and behind them, at most."""
_JSON_SPACE = " \t\n\r"
_STRING = r'"[^"\\\x00-\x1f]*"'
_OBJECT_BEGIN = re.compile(r'\{\s*(?:"|$)')
_NAME_FIRST = re.compile(
    rf'\{{\s*(?:"(?:id|type)"\s*:\s*{_STRING}\s*,\s*)*"name"\s*:\s*"(?P<name>[\w.-]+)"\s*,'
    r'\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)
"""What most models' objects of a name and arguments begin with: the call is certain before its arguments."""


class NotCallError(Exception):
    """The text is no call, however it goes on."""


@dataclass(frozen=True)
class ToolAnswer:
    """An answer, or a piece of one, with its calls taken out, and what was thought before it."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    """The calls. In pieces: one with an id and no arguments begins a call, those without add to its arguments."""
    reasoning: str = ""


def joined_calls(pieces: Iterable[ToolCall]) -> list[ToolCall]:
    """Whole calls."""
    calls: list[ToolCall] = []
    for piece in pieces:
        if not piece.call_id:
            begun = calls.pop()
            piece = ToolCall(begun.call_id, begun.name, begun.arguments + piece.arguments)
        calls.append(piece)
    return calls


class ToolCallParser:
    """Finds calls in text that comes in pieces; how it is cut makes no difference to what is found.

    A call is the form's begin mark, its head, a JSON object and one of its ends. Marks within the object's strings are
    words of the arguments. It is shown from its name on and the arguments as they come, so they may be cut off or be no
    JSON. A begin mark that nothing such follows is text, and what may begin a call is held back until that is known:
    the whole of a call whose name comes last. So is space at the end of the content: in an answer with calls none is
    shown before the first word and after the last one.
    """

    def __init__(self, form: ToolForm = HERMES, names: Collection[str] = (), *, has_content: bool = True) -> None:
        """names: tools that are offered. Where no mark begins it, a call of another is text. has_content: False where
        the answer is nothing but calls: then what is none is the beginning of one that was cut off, and left out."""
        self._form = form
        self._names = names
        self._has_content = has_content
        self._text = ""
        """Text that is not returned yet, and the arguments of the call that it is in."""
        self._take = self._take_content
        """Takes what the text goes on with."""
        self._begin = ""
        """The beginning of the call that the text is in, until that is certain: text again if it is no call."""
        self._object = JsonObjectEnd()
        """Finds the end of the object that the text begins with."""
        self._num_returned = 0
        """Characters of the arguments that were returned."""
        self._is_within = False
        """Whether the arguments stand in an object that goes on behind them."""
        self._content: list[str] = []
        self._calls: list[ToolCall] = []
        """Pieces of calls to return next."""
        self._space = ""
        self._has_words = self._has_calls = False

    def push(self, text: str) -> ToolAnswer:
        """The content and the calls that are certain now."""
        self._text += text
        return self._advance(is_over=False)

    def finish(self, text: str = "") -> ToolAnswer:
        """What is left with the last text. A call whose end is missing is one."""
        self._text += text
        rest = self._advance(is_over=True)
        is_whole = self._has_calls or not self._has_content
        return rest if is_whole else ToolAnswer(rest.content + self._space, rest.calls)

    def _advance(self, *, is_over: bool) -> ToolAnswer:
        has_more = True
        while has_more:
            try:
                has_more = self._take(is_over)
            except NotCallError:
                self._content.append(self._worded(self._begin))  # no call after all: not ours to swallow
                self._has_words = True
                self._take = self._take_content
        answer = ToolAnswer("".join(self._content) if self._has_content else "", tuple(self._calls))
        self._content = []
        self._calls = []
        return answer

    # Each takes its part off the text and sets what comes next; False: more text is needed, or all is taken.

    def _take_content(self, is_over: bool) -> bool:
        """Up to where a call may begin."""
        if self._form.is_bare and not self._has_words and not self._has_calls and self._text.lstrip().startswith("{"):
            self._begin = ""
            self._take = self._take_head
            return True
        before, mark, after = self._text.partition(self._form.begin)
        if mark:
            self._content.append(self._worded(before))
            self._begin = mark
            self._text = after
            self._take = self._take_head
            return True
        num_certain = len(self._text) - (0 if is_over else num_held(self._text, self._form.begin))
        words, self._text = self._text[:num_certain], self._text[num_certain:]
        self._content.append(self._worded(words))
        return False

    def _take_head(self, is_over: bool) -> bool:
        start = self._text.find("{")
        if start < 0 and len(self._text) <= _MAX_HEAD_CHARS and not is_over:
            return False
        head = self._form.head.fullmatch(self._text, 0, start) if 0 <= start <= _MAX_HEAD_CHARS else None
        if head is None:
            raise NotCallError
        self._begin = f"{self._begin}{head.group()}"
        self._text = self._text[start:]
        self._object = JsonObjectEnd()
        self._take = self._take_object
        if name := head.groupdict().get("name"):
            self._begin_call(name, is_within=False)
        return True

    def _take_object(self, is_over: bool) -> bool:
        """Take an object of a name and arguments."""
        if match := _NAME_FIRST.match(self._text, 0, _MAX_HEAD_CHARS):
            self._begin_call(match["name"], is_within=True)
            self._text = self._text[match.end() :]
            self._object = JsonObjectEnd()
            return True
        end = self._object.find(self._text) if _OBJECT_BEGIN.match(self._text) else 0
        if end is None and not is_over:
            return False
        name, arguments = _parse_call(self._text[:end])
        self._begin_call(name, is_within=False)
        self._calls.append(ToolCall("", "", arguments))
        self._text = self._text[end:]
        self._take = self._take_end
        return True

    def _take_arguments(self, is_over: bool) -> bool:
        end = self._object.find(self._text)
        if piece := self._text[self._num_returned : end]:
            self._calls.append(ToolCall("", "", piece))
            self._num_returned += len(piece)
        if end is None and not is_over:
            return False
        self._text = self._text[self._num_returned :]
        self._take = self._take_rest if self._is_within else self._take_end
        return True

    def _take_rest(self, is_over: bool) -> bool:
        """Take the rest of the object that the arguments stand in."""
        rest = self._text.lstrip(_JSON_SPACE)
        if not rest and not is_over:
            return False
        if rest.startswith((",", "}")):
            end = JsonObjectEnd().find(f"{{{rest}")
            if end is None and len(rest) < _MAX_HEAD_CHARS and not is_over:
                return False
            self._text = rest if end is None else rest[end - 1 :]
        self._take = self._take_end
        return True

    def _take_end(self, is_over: bool) -> bool:
        rest = self._text.lstrip(_JSON_SPACE)
        mark = next((mark for mark in self._form.ends if rest.startswith(mark) or mark.startswith(rest)), "")
        is_cut = not rest.startswith(mark)
        if is_cut and not is_over:
            return False
        self._begin = mark
        self._take = self._take_head if self._form.ends.get(mark) and not is_cut else self._take_content
        self._text = "" if is_cut else rest.removeprefix(mark) if mark else self._text
        return True

    def _begin_call(self, name: str, *, is_within: bool) -> None:
        """Begin a call that is certain."""
        if not self._begin.strip() and name not in self._names:
            raise NotCallError
        self._calls.append(ToolCall(self._form.new_id(), name, ""))
        self._has_calls = True
        self._num_returned = 0
        self._is_within = is_within
        self._take = self._take_arguments

    def _worded(self, text: str) -> str:
        """The part of some content that can be returned: without space where it is the first or the last."""
        text = self._space + text
        words = text.rstrip()
        self._space = text[len(words) :]
        if words and not self._has_words:
            self._has_words = True
            if self._has_calls:
                words = words.lstrip()
        return words


def _parse_call(text: str) -> tuple[str, str]:
    """(name, arguments). Raises NotCallError when it is no call, or one that we would refuse when it is sent back."""
    try:
        check_json(text.encode(), "the JSON of a call")
        call = parse_arguments(text)
        match call:
            case {"name": str(name), "arguments": dict(arguments)} | {"name": str(name), "parameters": dict(arguments)}:
                name.encode()
                return name, json.dumps(arguments)  # half a surrogate pair stays an escape
    except (ValueError, RecursionError):
        pass
    raise NotCallError


def num_held(text: str, mark: str) -> int:
    """Characters at the end that may begin the mark."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if mark.startswith(text[-n:])), 0)
