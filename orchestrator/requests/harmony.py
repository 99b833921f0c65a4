"""Answers of gpt-oss: messages on channels, in OpenAI's harmony format. Pure: no I/O, no HTTP.

A message is a header, `<|message|>` and a body that a mark ends; `<|start|>assistant` stands before all but the first,
which the prompt begins. A header has a channel and may have a recipient: `<|channel|>commentary to=functions.NAME
<|constrain|>json`, or ` to=functions.NAME<|channel|>commentary json`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from orchestrator.requests.tools.json_object_end import JsonObjectEnd
from orchestrator.requests.tools.tool_calls import ToolAnswer, num_held
from orchestrator.requests.tools.tool_forms.gpt_oss import CALL_END, GPT_OSS, MESSAGE
from pilotfish.chat import ToolCall
from pilotfish.models.tokens.tokenizer import Tokenizer

START, CHANNEL, END = "<|start|>", "<|channel|>", "<|end|>"
_TURN = f"{START}assistant"
_ENDS = (END, CALL_END, "<|return|>", START)
_END = re.compile("|".join(map(re.escape, _ENDS)))
_HEADER_BEGINS = (CHANNEL, START, MESSAGE, "to=functions.")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w*)")
_RECIPIENT = re.compile(r"\bto=(?:functions\.([\w-]+)(?=[\s<]|$))?")
_UNMARKED = re.compile(r"\A\s*<\|channel\|>\s*final(?!\s*<)\s*")
"""A header that the answer follows without the mark between."""
_MAX_HEADER_CHARS = 256

Kind = Literal["header", "thoughts", "content", "call", "rest"]
"""What the text is part of; `rest`: what follows a call's arguments."""


class HarmonyIds(NamedTuple):
    """Tokens by which thoughts are counted."""

    channel: int
    analysis: int
    ends: frozenset[int]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> HarmonyIds | None:
        """The tokenizer's; None where one of them is not one token."""
        texts = (CHANNEL, "analysis", *_ENDS)
        encoded = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        if any(len(ids) != 1 for ids in encoded):
            return None
        channel, analysis, *ends = (ids[0] for ids in encoded)
        return cls(channel, analysis, frozenset(ends))


class HarmonyParser:
    """See ThoughtsParser. Thoughts are the channel `analysis`, and messages to tools that the server has not."""

    def __init__(
        self, prompt_end: str, ids: HarmonyIds | None = None, *, splits_thoughts: bool = True, finds_calls: bool = True
    ) -> None:
        """prompt_end: the prompt from its last message's start on. splits_thoughts: whether they are taken out, else
        thoughts are content. finds_calls: whether calls are taken out, else they are thoughts."""
        self.finds_calls = finds_calls
        self._ids = ids
        self._splits_thoughts = splits_thoughts
        self._kind: Kind = "header"
        self._bare_kind: Kind = "content"
        """The kind of text without a header."""
        self._text = ""
        """Text that is not returned yet, and the arguments of the call that it is in."""
        self._object = JsonObjectEnd()
        """The call's arguments."""
        self._num_returned = 0
        """Characters of the arguments that were returned."""
        self._calls: list[ToolCall] = []
        """Pieces of calls to return next."""
        self._ready = {"thoughts": "", "content": ""}
        """Text of each kind to return next."""
        self._breaks = {"thoughts": "", "content": ""}
        """What stands before the next words: a line's end where other messages had some."""
        self._has_words = False
        self._num_tokens = 0
        self._is_thought = self._follows_channel = False
        self._begin(prompt_end)

    def push(self, text: str) -> ToolAnswer:
        self._text += text
        while self._take():
            pass
        return self._taken()

    def count(self, token_ids: Sequence[int]) -> None:
        if self._ids is None:
            return
        for token_id in token_ids:
            if self._follows_channel and token_id == self._ids.analysis:
                self._is_thought = True
                self._num_tokens += 1  # for the mark of the channel
            self._follows_channel = token_id == self._ids.channel
            self._num_tokens += self._is_thought
            self._is_thought = self._is_thought and token_id not in self._ids.ends

    @property
    def num_tokens(self) -> int | None:
        return None if self._ids is None else self._num_tokens

    def finish(self) -> ToolAnswer:
        if self._kind == "header":
            self._text = _UNMARKED.sub("", self._text)
            if self._text.strip() and not self._text.lstrip().startswith(_HEADER_BEGINS):
                self._kind = self._bare_kind
                while self._take():
                    pass
        if self._kind not in ("header", "call"):
            self._add(self._text)
        self._text = ""
        return self._taken()

    def _begin(self, prompt_end: str) -> None:
        """Read the prompt's end, none of which is returned; the answer may continue the prompt's last message."""
        self.push(prompt_end)
        if self._kind != "header":
            self._bare_kind = "thoughts" if self._kind == "thoughts" else "content"
            self._kind = "header"
            self._text = ""

    # Each takes its part off the text; False: more text is needed.

    def _take(self) -> bool:
        match self._kind:
            case "header":
                return self._take_header()
            case "call":
                return self._take_arguments()
            case _:
                return self._take_body()

    def _take_header(self) -> bool:
        start = self._text.lstrip()
        while start.startswith(_TURN):
            self._text = start.removeprefix(_TURN)
            start = self._text.lstrip()
        if not any(start.startswith(begin) or begin.startswith(start) for begin in _HEADER_BEGINS):
            self._kind = self._bare_kind  # such as an answer that is held to a format
            return True
        header, mark, body = self._text.partition(MESSAGE)
        if not mark:
            if len(header) > _MAX_HEADER_CHARS:
                self._text = _UNMARKED.sub("", self._text)
                self._kind = self._bare_kind
            return self._kind != "header"
        channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header)
        if self.finds_calls and recipient is not None and recipient[1]:
            arguments = body.lstrip()
            if not arguments:
                return False
            if arguments.startswith("{"):
                self._kind = "call"
                self._text = arguments
                self._object = JsonObjectEnd()
                self._num_returned = 0
                self._calls.append(ToolCall(GPT_OSS.new_id(), recipient[1], ""))
                return True
        is_content = recipient is None and channel is not None and channel[1] != "analysis"
        self._kind = "content" if is_content else "thoughts"
        self._text = body
        return True

    def _take_arguments(self) -> bool:
        """Marks in their strings are words."""
        end = self._object.find(self._text)
        if piece := self._text[self._num_returned : end]:
            self._calls.append(ToolCall("", "", piece))
            self._num_returned += len(piece)
        if end is not None:
            self._kind = "rest"
            self._text = self._text[end:]
        return end is not None

    def _take_body(self) -> bool:
        end = _END.search(self._text)
        if end is None:
            num_certain = len(self._text) - max(num_held(self._text, mark) for mark in _ENDS)
            self._add(self._text[:num_certain])
            self._text = self._text[num_certain:]
            return False
        self._add(self._text[: end.start()])
        self._text = self._text[end.start() if end[0] == START else end.end() :]
        if self._has_words:
            self._breaks[self._stream] = "\n"
        self._kind = "header"
        self._bare_kind = "content"
        self._has_words = False
        return True

    @property
    def _stream(self) -> str:
        return "thoughts" if self._kind == "thoughts" and self._splits_thoughts else "content"

    def _add(self, text: str) -> None:
        if text and self._kind != "rest":
            self._ready[self._stream] += self._breaks[self._stream] + text
            self._breaks[self._stream] = ""
            self._has_words = True

    def _taken(self) -> ToolAnswer:
        answer = ToolAnswer(self._ready["content"], tuple(self._calls), self._ready["thoughts"])
        self._ready = dict.fromkeys(self._ready, "")
        self._calls = []
        return answer
