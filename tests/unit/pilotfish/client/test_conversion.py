"""Requests as messages: what no message holds is refused with the name of what is wrong."""

from typing import Any

import pytest

from pilotfish.client.answer import GenerateOptions, TokenPrompt
from pilotfish.client.conversion import request_to_proto
from pilotfish.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 2**63}, r"seed is 9223372036854775808; it must be between"),
        ({"seed": -(2**63) - 1}, r"seed is -9223372036854775809"),
        ({"max_tokens": 2**32}, r"max_tokens is 4294967296"),
        ({"top_k": -1}, r"top_k is -1; it must be between 0 and"),
        ({"logprobs": -1}, r"logprobs is -1"),
        ({"num_speculative_tokens": 2**32}, r"num_speculative_tokens is 4294967296"),
    ],
)
def test_a_number_that_no_message_holds_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        request_to_proto("hello", GenerateOptions(**options))


@pytest.mark.parametrize("token_id", [-1, 2**32])
def test_a_token_id_that_is_none_is_refused_with_its_place(token_id: int) -> None:
    with pytest.raises(InvalidRequestError, match=rf"token 1 of the prompt is {token_id}, which is no token id"):
        request_to_proto(TokenPrompt((5, token_id)), GenerateOptions())


def test_the_least_and_the_most_arrive_as_they_are() -> None:
    options = GenerateOptions(seed=-(2**63), max_tokens=2**32 - 1, logprobs=0)
    request = request_to_proto(TokenPrompt((0, 2**32 - 1)), options)
    assert (request.seed, request.max_tokens, request.logprobs) == (-(2**63), 2**32 - 1, 0)
    assert list(request.tokens.token_ids) == [0, 2**32 - 1]
