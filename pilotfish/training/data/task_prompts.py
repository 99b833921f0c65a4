"""Wraps what the target has written into the tasks that people give a model.

A model's own user turns are mostly short questions; drafters must also know long prompts whose answer repeats
parts of them. The passages come from the same run, so that nothing but the target is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

OPENINGS = (
    "The",
    "In",
    "A",
    "By",
    "When",
    "After",
    "According to",
    "(CNN) --",
    "LONDON (Reuters) -",
    "Breaking:",
    "Police said",
    "Scientists have",
    "The history of",
    "In 1987,",
    "Wikipedia:",
    "Abstract:",
    "Introduction\n\n",
    "Chapter 1\n\n",
    "# ",
    "How to",
    "Q:",
    "Dear",
    "Once upon a time",
    "He said",
    "My",
    "Company",
    "def ",
    "import",
    "Question: A store sells",
    "Problem:",
)
"""First words of documents: news, reference, stories, letters, code, problems."""

_LANGUAGES = ("English", "German", "French", "Spanish", "simple English")
_STYLES = ("more formal", "more friendly", "shorter", "clearer", "as a list of bullet points", "for a child")
_ABOUT_ONE = (
    "Summarize the following text:\n\n{0}",
    "Summarize this in one sentence: {0}",
    "{0}\n\nTL;DR:",
    "Write a headline and a short summary for this article.\n\n{0}",
    "Translate the following text to {language}: {0}",
    "Translate {language} to English: {0}",
    "Rewrite the following text so that it is {style}:\n\n{0}",
    "Correct the grammar and spelling of this text:\n{0}",
    "Extract the key points from the text below.\n\n{0}",
    "List all the names, places and dates in this passage:\n\n{0}",
    "Extract the important facts from this text as JSON:\n\n{0}",
    "Continue this text:\n\n{0}",
    "What is the main idea of this passage? {0}",
    "Solve step by step: {0}",
    "Think carefully and answer the question. Show your reasoning.\n{0}",
    "Write code in Python for the following task:\n{0}",
    "Write a function that does this, with comments and an example:\n{0}",
    "Explain this to a beginner: {0}",
    "Is the following true? Explain why or why not.\n{0}",
    "Write a short story about this: {0}",
    "Write an email about this: {0}",
)
_ABOUT_MANY = (
    "Answer the question using the passages below.\n\nPassages:\n{passages}\n\nQuestion: {0}\nAnswer:",
    "{passages}\n\nBased on the documents above, answer this question: {0}",
    "Documents:\n{passages}\n\nWhat do these documents have in common?",
    "Summarize the following documents:\n\n{passages}",
)


def wrap_in_task(draw: Random, questions: Sequence[str], passages: Sequence[str], max_chars: int = 3200) -> str:
    """A user turn that asks for a task about earlier questions and answers of the run; both must not be empty."""
    if draw.random() < 0.25:
        chosen = draw.sample(passages, min(len(passages), draw.randint(2, 4)))
        numbered = "\n\n".join(f"[{number}] {_cut(text, max_chars // 4)}" for number, text in enumerate(chosen, 1))
        return draw.choice(_ABOUT_MANY).format(draw.choice(questions), passages=numbered)
    template = draw.choice(_ABOUT_ONE)
    # Steps, code and stories are asked about a question; the rest works on a text.
    source = questions if template.startswith(("Solve", "Think", "Write", "Is ")) else passages
    text = _cut(draw.choice(source), draw.choice((300, 800, max_chars)))
    return template.format(text, language=draw.choice(_LANGUAGES), style=draw.choice(_STYLES))


def _cut(text: str, max_chars: int) -> str:
    """The text up to the last sentence that ends within max_chars."""
    if len(text) <= max_chars:
        return text
    end = max(text.rfind(mark, 0, max_chars) for mark in (". ", "\n"))
    return text[: end + 1] if end > 0 else text[:max_chars]
