from __future__ import annotations

import pytest

from orchestrator.requests.prompt import TextPrompt, TokenPrompt, prompt_text
from pilotfish.errors import InvalidRequestError


class Words:
    """Token 0 is special."""

    vocab_size = 3

    def decode(self, token_ids, skip_special: bool = True) -> str:
        return "".join(("" if skip_special else "<|end|>", "a", "b")[token_id] for token_id in token_ids)


async def test_a_prompt_reads_as_it_was_given() -> None:
    assert await prompt_text(TextPrompt("<|end|> é"), Words()) == "<|end|> é"
    assert await prompt_text(TokenPrompt([0, 1, 0, 2]), Words()) == "<|end|>a<|end|>b"


async def test_tokens_that_do_not_exist_have_no_text() -> None:
    with pytest.raises(InvalidRequestError) as failure:
        await prompt_text(TokenPrompt([1, 3]), Words())
    assert failure.value.param == "prompt"
