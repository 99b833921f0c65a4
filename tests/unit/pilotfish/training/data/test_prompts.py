"""Prompts of a user's own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pilotfish.errors import InvalidRequestError
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.training.data.prompts import read_prompts

Write = Callable[..., Path]


def test_the_first_turn_is_what_is_asked(tokenizer: Tokenizer, write: Write) -> None:
    path = write({"turns": ["Hi?", "And?"], "licence": "MIT"}, "", {"turns": ["abc"]})
    prompts = read_prompts(path, tokenizer)
    assert [prompt.text for prompt in prompts] == ["Hi?", "abc"]
    asked = tokenizer.decode(prompts[0].token_ids, skip_special=False)
    assert asked == "<|im_start|>user\nHi?<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), "data.jsonl holds no prompts"),
        (("", " "), "holds no prompts"),
        (({"turns": ["abc"]}, "{"), "data.jsonl, line 2"),
        (({"turns": ["abc"]}, {"prompt": "abc"}), "line 2.*turns"),
        (({"turns": ["abc"]}, {"turns": []}), "line 2: turns must begin"),
        (({"turns": ["abc"]}, {"turns": [" "]}), "line 2: turns must begin"),
        (({"turns": "abc"},), "line 1.*array"),
    ],
)
def test_bad_files_are_refused(tokenizer: Tokenizer, write: Write, lines: tuple[object, ...], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        read_prompts(write(*lines), tokenizer)
