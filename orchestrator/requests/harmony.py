"""gpt-oss' answers: messages on channels, in OpenAI's harmony format. Pure: no I/O, no HTTP.

A message is a header, `<|message|>` and a body that a mark ends; `<|start|>assistant` stands before all but the first,
which the prompt begins. A header has a channel and may have a recipient: `<|channel|>commentary to=functions.NAME
<|constrain|>json`, or ` to=functions.NAME<|channel|>commentary json`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from orchestrator.requests.tool_calls import num_held
from orchestrator.requests.tool_forms.gpt_oss import CALL_BEGIN, CALL_END, MESSAGE
from pilotfish.models.tokens.tokenizer import Tokenizer

START, CHANNEL, END = "<|start|>", "<|channel|>", "<|end|>"
_TURN = f"{START}assistant"
_ENDS = (END, CALL_END, "<|return|>", START)
_END = re.compile("|".join(map(re.escape, _ENDS)))
_HEADER_BEGINS = (CHANNEL, START, "to=")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w*)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_FUNCTIONS = "functions."
_MAX_HEADER_CHARS = 256

Kind = Literal["header", "thoughts", "content", "call"]


class HarmonyIds(NamedTuple):
    """Tokens by which thoughts are counted."""

    channel: int
    analysis: int
    ends: frozenset[int]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> HarmonyIds | None:
        """None where one of them is not one token."""
        texts = (CHANNEL, "analysis", *_ENDS)
        encoded = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
        if any(len(ids) != 1 for ids in encoded):
            return None
        channel, analysis, *ends = (ids[0] for ids in encoded)
        return cls(channel, analysis, frozenset(ends))


class HarmonyParser:
    """See ThoughtsParser. Calls stay in the content, each from its channel on, as GPT_OSS finds them. Thoughts are the
    channel `analysis`, and messages to tools that the server has not."""

    def __init__(self, prompt_end: str, ids: HarmonyIds | None = None, *, is_told_apart: bool = True) -> None:
        """prompt_end: from its last message's start on. is_told_apart: otherwise thoughts are content."""
        self._ids = ids
        self._is_told_apart = is_told_apart
        self._kind: Kind = "header"
        self._text = ""
        """What is not told yet."""
        self._told = {"thoughts": "", "content": ""}
        """To be told next."""
        self._breaks = {"thoughts": "", "content": ""}
        """What stands before the next words: a line's end where other messages had some."""
        self._has_words = False
        self._num_tokens = 0
        self._is_thought = self._follows_channel = False
        self.push(prompt_end.removeprefix(_TURN))

    def push(self, text: str) -> tuple[str, str]:
        self._text += text
        while self._take_header() if self._kind == "header" else self._take_body():
            pass
        return self._taken()

    def count(self, token_ids: Sequence[int]) -> None:
        if self._ids is None:
            return
        for token_id in token_ids:
            if self._follows_channel and token_id == self._ids.analysis:
                self._is_thought, self._num_tokens = True, self._num_tokens + 1  # for the mark of the channel
            self._follows_channel = token_id == self._ids.channel
            self._num_tokens += self._is_thought
            self._is_thought = self._is_thought and token_id not in self._ids.ends

    @property
    def num_tokens(self) -> int | None:
        return None if self._ids is None else self._num_tokens

    def finish(self) -> tuple[str, str]:
        if self._kind != "header":
            self._tell(self._text)
        elif self._text.strip() and not self._text.lstrip().startswith(_HEADER_BEGINS):
            self._kind = "content"
            self._tell(self._text)
        self._text = ""
        return self._taken()

    # Each takes its part off the text; False: more text is needed.

    def _take_header(self) -> bool:
        start = self._text.lstrip()
        if not any(start.startswith(begin) or begin.startswith(start) for begin in _HEADER_BEGINS):
            self._kind = "content"  # no header: an answer that is held to a format
            return True
        header, mark, body = self._text.partition(MESSAGE)
        if not mark:
            if len(header) > _MAX_HEADER_CHARS:
                self._kind = "content"
            return self._kind == "content"
        self._text = body
        channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header)
        if recipient is not None and recipient[1].startswith(_FUNCTIONS):
            self._kind = "call"
            self._tell(f"{CALL_BEGIN}{recipient[1].removeprefix(_FUNCTIONS)}{MESSAGE}")
        else:
            is_content = recipient is None and channel is not None and channel[1] != "analysis"
            self._kind = "content" if is_content else "thoughts"
        return True

    def _take_body(self) -> bool:
        end = _END.search(self._text)
        if end is None:
            num_told = len(self._text) - max(num_held(self._text, mark) for mark in _ENDS)
            self._tell(self._text[:num_told])
            self._text = self._text[num_told:]
            return False
        self._tell(self._text[: end.start()])
        if self._kind == "call":
            self._tell(CALL_END)
        self._text = self._text[end.start() if end[0] == START else end.end() :]
        if self._has_words and self._kind != "call":
            self._breaks[self._stream] = "\n"
        self._kind, self._has_words = "header", False
        return True

    @property
    def _stream(self) -> str:
        return "thoughts" if self._kind == "thoughts" and self._is_told_apart else "content"

    def _tell(self, text: str) -> None:
        if text:
            self._told[self._stream] += self._breaks[self._stream] + text
            self._breaks[self._stream] = ""
            self._has_words = True

    def _taken(self) -> tuple[str, str]:
        told = self._told["thoughts"], self._told["content"]
        self._told = dict.fromkeys(self._told, "")
        return told
