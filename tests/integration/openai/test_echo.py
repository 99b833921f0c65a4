"""The prompt as it was given, before each answer."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.support.byte_tokenizer import byte_vocabulary

TOKENS = byte_vocabulary()
START, END = 1, 2
"""Special tokens; see `byte_tokenizer.SPECIAL_TOKENS`."""
TOKEN_PROMPT = [START, *(TOKENS[bytes([byte])] for byte in "né😀".encode()), END, TOKENS[b" a"]]
TOKEN_PROMPT_TEXT = "<|im_start|>né😀<|im_end|> a"
PROMPTS: dict[str, tuple[Any, list[str]]] = {
    "text": ("<|im_start|>né 😀\n", ["<|im_start|>né 😀\n"]),
    "texts": (["a<|end|>", "中"], ["a<|end|>", "中"]),
    "tokens": (TOKEN_PROMPT, [TOKEN_PROMPT_TEXT]),
    "token lists": ([TOKEN_PROMPT, [START], [TOKENS[b"a"], END]], [TOKEN_PROMPT_TEXT, "<|im_start|>", "a<|im_end|>"]),
}


def texts_of(client: openai.OpenAI, prompt: Any, n: int, stream: bool, echo: bool) -> list[str]:
    options = {"model": "", "prompt": prompt, "n": n, "seed": 4, "max_tokens": 6, "echo": echo}
    if not stream:
        return [choice.text for choice in client.completions.create(**options).choices]
    texts: dict[int, str] = {}
    for event in client.completions.create(stream=True, **options):
        for choice in event.choices:
            texts[choice.index] = texts.get(choice.index, "") + choice.text
    return [texts[index] for index in sorted(texts)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", PROMPTS)
def test_each_answer_begins_with_its_prompt(bytes_client: openai.OpenAI, name: str, n: int, stream: bool) -> None:
    prompt, given = PROMPTS[name]
    answers = texts_of(bytes_client, prompt, n, stream, echo=False)
    echoed = texts_of(bytes_client, prompt, n, stream, echo=True)
    assert echoed == [given[index // n] + answer for index, answer in enumerate(answers)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("token_id", [10**4, 2**40])
def test_tokens_that_do_not_exist_are_refused(bytes_client: openai.OpenAI, token_id: int, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as failure:
        bytes_client.completions.create(model="", prompt=[token_id], echo=True, stream=stream)
    assert failure.value.param == "prompt"
