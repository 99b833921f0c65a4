import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.requests import prompt as prompts
from orchestrator.requests.prompt import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from pilotfish.chat import ChatMessage
from pilotfish.errors import InvalidRequestError, PromptTooLongError
from pilotfish.models.tokens.tokenizer import Tokenizer
from tests.support.byte_tokenizer import byte_backend, byte_tokenizer


async def run(work):
    """At once."""
    return work()


async def token_ids_of(prompt: Prompt, tokenizer: Any, max_context_tokens: int) -> Sequence[int]:
    return await prompts.token_ids_of(prompt, tokenizer, max_context_tokens, run)


async def prompt_text(prompt: TextPrompt | TokenPrompt, tokenizer: Any, max_context_tokens: int) -> str:
    return await prompts.prompt_text(prompt, tokenizer, max_context_tokens, run)


class Words:
    """Token 0 is special."""

    vocab_size = 3

    def decode(self, token_ids, skip_special: bool = True) -> str:
        return "".join(("" if skip_special else "<|end|>", "a", "b")[token_id] for token_id in token_ids)


async def test_a_text_is_bounded_by_the_context() -> None:
    tokenizer = byte_tokenizer()
    several = "7" * 4 * 32_768
    assert len(await token_ids_of(TextPrompt(several), tokenizer, 32_768)) == len(several)
    with pytest.raises(PromptTooLongError) as failure:
        await token_ids_of(TextPrompt(several + "7" * 1000), tokenizer, 32_768)
    assert failure.value.param == "prompt"


async def test_the_tokens_of_a_short_text_are_counted_whatever_the_context() -> None:
    assert len(await token_ids_of(TextPrompt("x" * 60_000), byte_tokenizer(), 16)) == 60_000


async def test_a_rendered_chat_is_bounded_by_the_context(tmp_path: Path) -> None:
    byte_backend().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"model_type": "llama", "vocab_size": 300, "max_position_embeddings": 64}')
    template = "{% for each in range(9) %}{{ messages[0].content }}{% endfor %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    tokenizer = Tokenizer.load(tmp_path)
    assert len(await token_ids_of(ChatPrompt((ChatMessage("user", "x"),)), tokenizer, 64)) == 9
    with pytest.raises(PromptTooLongError):
        await token_ids_of(ChatPrompt((ChatMessage("user", "x" * 10_000),)), tokenizer, 64)


async def test_a_prompt_of_more_tokens_than_the_context_is_not_decoded() -> None:
    with pytest.raises(PromptTooLongError) as failure:
        await prompt_text(TokenPrompt([1] * 5), Words(), 4)
    assert failure.value.param == "prompt"


async def test_a_prompt_reads_as_it_was_given() -> None:
    assert await prompt_text(TextPrompt("<|end|> é"), Words(), 4) == "<|end|> é"
    assert await prompt_text(TokenPrompt([0, 1, 0, 2]), Words(), 4) == "<|end|>a<|end|>b"


async def test_tokens_that_do_not_exist_have_no_text() -> None:
    with pytest.raises(InvalidRequestError) as failure:
        await prompt_text(TokenPrompt([1, 3]), Words(), 4)
    assert failure.value.param == "prompt"
