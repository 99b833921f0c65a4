"""How a model writes calls."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

JSON_SPACE = re.compile(r"[ \t\n\r]*")
MARKS = re.compile(r"(\[[A-Z_]+\]|<[^<>]+>)")
"""What may be a special token."""


class WrittenForm(NamedTuple):
    """What an answer of nothing but calls is."""

    call: str
    """One call, with $name and $arguments in it."""
    between: str
    """Two calls."""
    begin: str = ""
    end: str = ""


@dataclass(frozen=True)
class ToolForm:
    """How calls are found in text, and how they are written when they are demanded."""

    template_marks: tuple[str, ...]
    """Marks of this form: it is used where a chat template has all of them."""
    begin: str
    """What calls are found by."""
    head: re.Pattern[str]
    """What stands between `begin` and a JSON object. With a group `name` the object is the arguments; else it holds
    the name and the arguments."""
    ends: Mapping[str, bool]
    """What may follow the object after JSON's space, and whether the head of another call follows that. Of several that
    fit, the first counts."""
    written: WrittenForm
    is_bare: bool = False
    """An answer may begin with such an object, without `begin`."""
    num_id_chars: int | None = None
    """Length of a call's id, where the chat template takes no other."""
    answer_begin: str = ""
    """Text before an answer that is no call."""
    special_token_ids: Mapping[str, int] = field(default_factory=dict)
    """Marks in `written` that the model's tokenizer has as special tokens: no text writes them."""

    def new_id(self) -> str:
        """A new id of a call."""
        return (
            f"call_{secrets.token_hex(12)}" if self.num_id_chars is None else secrets.token_hex()[: self.num_id_chars]
        )

    def literal(self, text: str) -> str:
        """The text in a Lark rule."""
        ids = self.special_token_ids
        pieces = MARKS.split(text) if ids else [text]
        return " ".join(
            f"<[{ids[piece]}]>" if piece in ids else json.dumps(piece, ensure_ascii=False) for piece in pieces
        )
