"""The beginnings of prompts, which are found in the target's cache and not computed again.

A head drafts behind the whole prompt. Texts to learn from and to judge by would lack what many prompts have in common,
and say little of how it drafts. Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pilotfish.engine.learning.recording import MAX_TEXT_TOKENS
from pilotfish.features import Features
from pilotfish.learning.record import LearnedText

_MAX_PROMPTS = 16
"""Prompts of which features are kept, the last ones used."""
_MAX_BYTES = 64 << 20
"""Bytes of the features that are kept: of a wide target, fewer prompts'."""


class Beginnings:
    """Features of prompts that were computed from their first token on. One thread's."""

    def __init__(self) -> None:
        self._known: list[tuple[tuple[int, ...], bytes]] = []
        """Token ids and their features, the last one used at the end."""

    def complete(self, text: LearnedText, prompt: Sequence[int]) -> LearnedText:
        """The text from the first token of its prompt on, if another prompt that began alike was computed; else as it
        is. prompt: the request's."""
        first = text.features.first_position
        if first == 0:
            self._keep(text)
            return text
        beginning = tuple(prompt[:first])
        features = self._features(beginning, text.features.token_bytes)
        if features is None or not text.prompt_len or first + len(text.token_ids) > MAX_TEXT_TOKENS:
            return text
        return msgspec.structs.replace(
            text,
            prompt_len=first + text.prompt_len,
            token_ids=(*beginning, *text.token_ids),
            features=Features(0, first + len(text.token_ids), features + text.features.data),
        )

    def _keep(self, text: LearnedText) -> None:
        prompt = text.token_ids[: text.prompt_len]
        self._known = [each for each in self._known if each[0] != prompt]
        self._known.append((prompt, text.features.data[: len(prompt) * text.features.token_bytes]))
        while len(self._known) > _MAX_PROMPTS or sum(len(data) for _, data in self._known) > _MAX_BYTES:
            del self._known[0]

    def _features(self, beginning: tuple[int, ...], token_bytes: int) -> bytes | None:
        """Features of these tokens, of so many bytes each; None: they are not known."""
        for index, (prompt, data) in enumerate(self._known):
            if prompt[: len(beginning)] == beginning and len(data) == len(prompt) * token_bytes:
                self._known.append(self._known.pop(index))
                return data[: len(beginning) * token_bytes]
        return None
