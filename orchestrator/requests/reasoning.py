"""What a model thinks between marks before it answers. Pure: no I/O, no HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, Protocol

from orchestrator.requests.tools.tool_calls import ToolAnswer, ToolCallParser, num_held

MAX_MARK_TOKENS = 64
"""Tokens looked at at the end of a prompt, for a mark that it ends with; a byte each at worst."""


class ReasoningMarks(NamedTuple):
    """What stands around the thoughts."""

    begin: str
    end: str


_THINK = ReasoningMarks("<think>", "</think>")
HARMONY = ReasoningMarks("<|channel|>analysis<|message|>", "<|end|>")
"""The marks of the first thoughts: see HarmonyParser."""
PARSERS: Mapping[str, ReasoningMarks] = {
    "deepseek_r1": _THINK,
    "qwen3": _THINK,
    "glm45": _THINK,
    "mistral": ReasoningMarks("[THINK]", "[/THINK]"),
    "seed_oss": ReasoningMarks("<seed:think>", "</seed:think>"),
    "openai_gptoss": HARMONY,
    "granite": ReasoningMarks("Here is my thought process:", "Here is my response:"),
}
"""Marks by vLLM's parser names, as in HttpConfig."""


def reasoning_marks(name: str, chat_template: str) -> ReasoningMarks | None:
    """The marks of a parser; `auto`: of the first whose end mark the chat template has, or begin mark where others have
    that end; None: the model is not one that thinks, or `none`."""
    if name == "auto":
        found_by = {marks: marks.begin if marks is HARMONY else marks.end for marks in PARSERS.values()}
        return next((marks for marks, mark in found_by.items() if mark in chat_template), None)
    return PARSERS.get(name)


class ThoughtsParser(Protocol):
    """Takes an answer's thoughts out of its text, which comes in pieces; how it is cut makes no difference."""

    finds_calls: bool
    """Whether it takes calls out as well."""

    def push(self, text: str) -> ToolAnswer:
        """What is certain now."""

    def finish(self) -> ToolAnswer:
        """What is left when no more comes."""

    def count(self, token_ids: Sequence[int]) -> None:
        """Count the answer's next tokens; the text may lag behind."""

    @property
    def num_tokens(self) -> int | None:
        """Tokens of the thoughts and their marks; None where that is not known."""


class ReasoningParser:
    """See ThoughtsParser.

    Thoughts are at the beginning or nowhere. What may begin a mark is held back until that is known, and so is space
    around thoughts, which is left out.
    """

    finds_calls = False

    def __init__(self, marks: ReasoningMarks, *, is_inside: bool, end_id: int | None = None) -> None:
        """is_inside: whether the prompt ends with the begin mark, as in some templates. end_id: the end mark, where it
        is one token."""
        self._marks = marks
        self._end_id = end_id
        self._num_tokens = 0
        self._is_counting = True
        self._place: Literal["before", "inside", "behind"] = "inside" if is_inside else "before"
        self._text = ""
        """Text that is not returned yet."""
        self._skips_space = True
        """Whether no word of the thoughts, or of the content behind them, was returned yet."""

    def push(self, text: str) -> ToolAnswer:
        self._text += text
        if self._place == "before":
            self._look_for_begin()
        thoughts = self._thoughts() if self._place == "inside" else ""
        return ToolAnswer(self._take() if self._place == "behind" else "", reasoning=thoughts)

    def count(self, token_ids: Sequence[int]) -> None:
        if self._is_counting:
            self._is_counting = self._end_id not in token_ids
            self._num_tokens += len(token_ids) if self._is_counting else token_ids.index(self._end_id) + 1

    @property
    def is_behind(self) -> bool:
        """Whether thoughts have ended, or there are none."""
        return self._place == "behind"

    @property
    def is_inside(self) -> bool:
        """Whether the text is within thoughts."""
        return self._place == "inside"

    @property
    def num_tokens(self) -> int | None:
        return None if self._end_id is None else 0 if self._place == "before" else self._num_tokens

    def finish(self) -> ToolAnswer:
        rest, self._text = self._text, ""
        return ToolAnswer("", reasoning=rest.rstrip()) if self._place == "inside" else ToolAnswer(rest)

    def _look_for_begin(self) -> None:
        start = self._text.lstrip()
        if start.startswith(self._marks.begin):
            self._place = "inside"
            self._text = start.removeprefix(self._marks.begin)
        elif not self._marks.begin.startswith(start):
            self._place = "behind"
            self._skips_space = False
            self._is_counting = False
            self._num_tokens = 0

    def _thoughts(self) -> str:
        before, mark, after = self._text.partition(self._marks.end)
        if mark:
            self._text = before.rstrip()
            text = self._take()
            self._place = "behind"
            self._text = after
            self._skips_space = True
            return text
        num_certain = len(self._text[: len(self._text) - num_held(self._text, self._marks.end)].rstrip())
        held, self._text = self._text[num_certain:], self._text[:num_certain]
        text, self._text = self._take(), held
        return text

    def _take(self) -> str:
        text, self._text = self._text.lstrip() if self._skips_space else self._text, ""
        self._skips_space = self._skips_space and not text
        return text


MakeParser = Callable[[], ThoughtsParser | None]
"""Makes a parser for each answer to a prompt; None: thoughts are not separated."""


class AnswerParser:
    """Takes a chat's answer apart: thoughts, calls, and content, which is the rest."""

    def __init__(
        self,
        reasoning: ThoughtsParser | None = None,
        tools: ToolCallParser | None = None,
        max_calls: int | None = None,
    ) -> None:
        """max_calls: the most calls that are returned; further ones are left out."""
        self._max_calls = max_calls
        self._num_calls = 0
        self._reasoning = reasoning
        self._tools = None if reasoning is not None and reasoning.finds_calls else tools

    @property
    def num_reasoning_tokens(self) -> int | None:
        """Tokens of the thoughts and their marks; None where it is not known."""
        return None if self._reasoning is None else self._reasoning.num_tokens

    def push(self, text: str, token_ids: Sequence[int] = ()) -> ToolAnswer:
        """What is certain now."""
        return self._limited(self._pushed(text, token_ids))

    def finish(self, text: str = "", token_ids: Sequence[int] = ()) -> ToolAnswer:
        """What is left with the last text."""
        pushed = self._pushed(text, token_ids)
        rest = ToolAnswer("") if self._reasoning is None else self._reasoning.finish()
        if self._tools is not None:
            rest = _thought(rest.reasoning, self._tools.finish(rest.content))
        return self._limited(
            ToolAnswer(pushed.content + rest.content, (*pushed.calls, *rest.calls), pushed.reasoning + rest.reasoning)
        )

    def _pushed(self, text: str, token_ids: Sequence[int]) -> ToolAnswer:
        answer = ToolAnswer(text)
        if self._reasoning is not None:
            self._reasoning.count(token_ids)
            answer = self._reasoning.push(text)
        return answer if self._tools is None else _thought(answer.reasoning, self._tools.push(answer.content))

    def _limited(self, answer: ToolAnswer) -> ToolAnswer:
        if self._max_calls is None or not answer.calls:
            return answer
        kept = []
        for piece in answer.calls:
            self._num_calls += bool(piece.call_id)
            if self._num_calls <= self._max_calls:
                kept.append(piece)
        return replace(answer, calls=tuple(kept))


def _thought(thoughts: str, answer: ToolAnswer) -> ToolAnswer:
    """The answer with what was thought before it."""
    return replace(answer, reasoning=thoughts) if thoughts else answer
