"""Where a JSON object ends, in text that comes in pieces. Pure."""

from __future__ import annotations

import re

_OUTSIDE_STRINGS = re.compile(r'[\[\]{}"]')
_IN_STRING = re.compile(r'["\\]')


class JsonObjectEnd:
    """Looks at each character once. It counts brackets and knows strings; whether all else is JSON is for a parser."""

    def __init__(self) -> None:
        self._position = 0
        """Up to which the text was looked at."""
        self._depth = 0
        self._is_in_string = False
        self._end: int | None = None

    def find(self, text: str) -> int | None:
        """The index behind the object; None while it goes on. text: all so far, each time; it begins with a bracket."""
        while self._end is None:
            pattern = _IN_STRING if self._is_in_string else _OUTSIDE_STRINGS
            match = pattern.search(text, self._position)
            if match is None:
                self._position = len(text)
                return None
            self._position = match.end()
            character = match.group()
            if character == "\\" and self._position == len(text):
                self._position -= 1  # what it escapes is still to come
                return None
            self._take(character)
        return self._end

    def _take(self, character: str) -> None:
        if character == "\\":
            self._position += 1
        elif character == '"':
            self._is_in_string = not self._is_in_string
        else:
            self._depth += 1 if character in "{[" else -1
            if self._depth == 0:
                self._end = self._position
