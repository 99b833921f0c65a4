"""Data of a user's own, in three kinds of lines."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pilotfish.errors import InvalidRequestError
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.training.data.conversations import read_data

Write = Callable[..., Path]


def test_kinds_of_lines(tokenizer: Tokenizer, write: Write) -> None:
    chat = [
        {"role": "user", "content": "Hi?"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": "Well."},
        {"role": "user", "content": "not answered"},
    ]
    path = write({"prompt_len": 2, "token_ids": [4, 5, 6]}, "", {"messages": chat}, {"text": "abc"})
    tokens, messages, text = read_data(path, tokenizer, 512)
    assert (tokens.prompt_len, tokens.token_ids) == (2, [4, 5, 6])
    prompt = tokenizer.decode(messages.token_ids[: messages.prompt_len], skip_special=False)
    assert prompt.endswith("Hello.<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.decode(messages.token_ids[messages.prompt_len :], skip_special=False) == "Well.<|im_end|>"
    assert (text.prompt_len, text.token_ids) == (1, tokenizer.encode("abc"))


def test_long_lines_are_cut_and_long_prompts_left_out(tokenizer: Tokenizer, write: Write) -> None:
    path = write(
        {"text": "abcdefgh"},
        {"prompt_len": 5, "token_ids": [9] * 6},
        {"prompt_len": 4, "token_ids": [9] * 6},
    )
    assert [len(line.token_ids) for line in read_data(path, tokenizer, 5)] == [5, 5]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), "holds 0 conversations"),
        (({"text": "abc"},), "holds 1 conversations"),
        (({"text": "abc"}, "{"), "line 2"),
        (({"text": "abc"}, {"prompt": "abc"}), "line 2: neither"),
        (({"text": "abc"}, {"text": "a"}), "line 2: prompt_len is 1 of 1"),
        (({"text": "abc"}, {"prompt_len": 1, "token_ids": [1, 300]}), "line 2: a token id"),
        (({"text": "abc"}, {"messages": [{"role": "user", "content": "a"}]}), "line 2: no assistant turn"),
        (({"text": "abc"}, {"messages": "a"}), "line 2"),
    ],
)
def test_bad_files_are_refused(tokenizer: Tokenizer, write: Write, lines: tuple[object, ...], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        read_data(write(*lines), tokenizer, 512)


def test_a_file_that_is_not_there_is_named(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"cannot read .*none\.jsonl"):
        read_data(tmp_path / "none.jsonl", tokenizer, 512)
