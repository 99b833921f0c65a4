"""Log-probabilities of answers whose characters are made of several tokens, whole and streamed."""

from __future__ import annotations

from typing import Any

import openai
import pytest

TEXT = "é😀中 a-ab€"
"""The tokens are bytes and merges that straddle characters; the random model chooses among them."""
FORCED = {"structured_outputs": {"choice": [TEXT]}}
FREE: dict[str, Any] = {}
ANSWERS: dict[str, dict[str, Any]] = {
    "forced": {"extra_body": FORCED},
    "free": {"extra_body": FREE},
    "several": {"extra_body": FORCED, "n": 3},
    "stop in a character's tokens": {"extra_body": FORCED, "stop": ["中 a"]},
    "stop that is only begun": {"extra_body": FORCED, "stop": ["中 ab", "-abc"]},
    "cut off": {"extra_body": FORCED, "max_tokens": 5},
}


def options_of(name: str, mode: str) -> dict[str, Any]:
    given = dict(ANSWERS[name])
    body = {**given.pop("extra_body"), "speculation": {"mode": mode, "proposer": "ngram", "return_tokens": True}}
    return {"model": "", "prompt": "é", "seed": 6, "max_tokens": 60, "logprobs": 2, "extra_body": body, **given}


def complete(client: openai.OpenAI, options: dict[str, Any]) -> list[tuple[str, dict[str, Any], list[str]]]:
    """Of each choice its text, its log-probabilities and its tokens' texts."""
    return [
        (choice.text, choice.logprobs.model_dump(), choice.speculation["tokens"]["texts"])
        for choice in client.completions.create(**options).choices
    ]


def complete_streamed(client: openai.OpenAI, options: dict[str, Any]) -> list[tuple[str, dict[str, Any], list[str]]]:
    texts = [""] * options.get("n", 1)
    told: list[dict[str, Any]] = [{} for _ in texts]
    tokens: list[list[str]] = [[] for _ in texts]
    for event in client.completions.create(stream=True, **options):
        for choice in event.choices:
            texts[choice.index] += choice.text
            tokens[choice.index] += choice.speculation["tokens"]["texts"]
            for key, values in choice.logprobs.model_dump().items() if choice.logprobs else ():
                told[choice.index].setdefault(key, []).extend(values)
    return list(zip(texts, told, tokens, strict=True))


@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize("name", ANSWERS)
def test_offsets_point_into_the_text(bytes_client: openai.OpenAI, name: str, mode: str) -> None:
    options = options_of(name, mode)
    answers = complete(bytes_client, options)
    assert complete_streamed(bytes_client, options) == answers
    for text, logprobs, tokens in answers:
        offsets = logprobs["text_offset"]
        assert len(tokens) == len(offsets) == len(logprobs["tokens"]) == len(logprobs["token_logprobs"])
        for token, logprob, top in zip(
            *(logprobs[key] for key in ("tokens", "token_logprobs", "top_logprobs")), strict=True
        ):
            assert top[token] == logprob
            likeliest = sorted(top.values(), reverse=True)
            assert len(top) == 2 or (len(top) == 3 and logprob == likeliest[-1])
        assert offsets[0] == 0
        assert offsets == sorted(offsets)
        assert offsets[-1] <= len(text)
        for token, offset in zip(tokens, offsets, strict=True):
            is_partial = "\ufffd" in token or token.startswith("<|")
            assert is_partial or token.startswith(text[offset : offset + len(token)])
        if name == "forced":
            assert text == TEXT
            assert {TEXT.index(letter) for letter in "é😀中 -€"} <= set(offsets)


def test_bytes_of_a_chats_tokens_join_to_its_text(bytes_client: openai.OpenAI) -> None:
    options = options_of("forced", "off")
    del options["prompt"], options["logprobs"]
    choice = bytes_client.chat.completions.create(
        messages=[{"role": "user", "content": "é"}], logprobs=True, top_logprobs=3, **options
    ).choices[0]
    content = choice.logprobs.content
    assert bytes(byte for item in content for byte in item.bytes).decode() == choice.message.content == TEXT
    assert all(len(item.top_logprobs) == 3 for item in content)
