"""A user's turn that the target writes: how it begins, and whether what was written is a question."""

from __future__ import annotations

import re

from pilotfish.chat import ChatMessage
from pilotfish.errors import UnsupportedModelError
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.speculation.common_prefix import num_common_tokens


def user_turn_prefix(tokenizer: Tokenizer, chat: tuple[ChatMessage, ...]) -> tuple[int, ...]:
    """The tokens of the chat template up to the words of the user's next turn.

    Raises UnsupportedModelError when the template puts nothing before them.
    """
    one, other = (tokenizer.apply_chat_template([*chat, ChatMessage("user", word)]) for word in ("Hello", "42"))
    length = num_common_tokens(one, other)
    if length == 0:
        raise UnsupportedModelError("the target's chat template begins with the user's words: give --data instead")
    return tuple(one[:length])


def clean_question(text: str) -> str | None:
    """A user's turn without the blanks around it; None when there is nothing to answer."""
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    has_words = len(re.findall(r"\w", text)) >= 8
    return text if has_words and len(text.split()) >= 3 else None
