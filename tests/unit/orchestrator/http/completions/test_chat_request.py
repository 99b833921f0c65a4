from __future__ import annotations

import pytest

from orchestrator.http.completions.chat_request import ChatCompletionRequest, ContentPart, Message
from pilotfish.chat import ChatMessage
from pilotfish.errors import InvalidRequestError

MESSAGES = [Message(role="user", content="sea")]


@pytest.mark.parametrize(
    ("texts", "content"),
    [([], ""), (["a"], "a"), (["a\n", "b"], "a\n\nb"), (["", "b"], "\nb"), (["é", "🐟", "c"], "é\n🐟\nc")],
)
@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
@pytest.mark.parametrize("kind", ["text", "input_text", "output_text"])
def test_text_parts_stand_on_lines_of_their_own(kind, role, texts, content) -> None:
    parts = [ContentPart(type=kind, text=text) for text in texts]
    request = ChatCompletionRequest(messages=[Message(role=role, content=parts)])
    assert request.prompt(request.tool_use()).messages == (ChatMessage(role, content),)


def test_the_newer_limit_goes_first_and_the_default_last() -> None:
    assert ChatCompletionRequest(messages=MESSAGES).max_output_tokens(100) == 100
    assert ChatCompletionRequest(messages=MESSAGES, max_tokens=5).max_output_tokens(100) == 5
    request = ChatCompletionRequest(messages=MESSAGES, max_tokens=5, max_completion_tokens=7)
    assert request.max_output_tokens(100) == 7


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"logprobs": False, "top_logprobs": 0}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 4}, 4),
    ],
)
def test_logprobs(fields, expected) -> None:
    assert ChatCompletionRequest(messages=MESSAGES, **fields).num_logprobs == expected


def test_likeliest_tokens_need_logprobs() -> None:
    with pytest.raises(InvalidRequestError):
        _ = ChatCompletionRequest(messages=MESSAGES, top_logprobs=4).num_logprobs


def test_the_chat_template_is_given_a_bounded_number_of_fields() -> None:
    given = {f"mood{index}": 1 for index in range(64)}
    request = ChatCompletionRequest(messages=MESSAGES, chat_template_kwargs=given)
    assert request.prompt(request.tool_use()).options.variables == given
    request = ChatCompletionRequest(messages=MESSAGES, chat_template_kwargs={**given, "more": 1})
    with pytest.raises(InvalidRequestError) as failure:
        request.prompt(request.tool_use())
    assert failure.value.param == "chat_template_kwargs"


def test_the_chat_template_is_given_the_requests_documents() -> None:
    documents = [{"title": "fish", "text": "pilot"}]
    request = ChatCompletionRequest(messages=MESSAGES, documents=documents, reasoning_effort="low")
    assert request.prompt(request.tool_use()).options.variables == {"documents": documents, "reasoning_effort": "low"}


@pytest.mark.parametrize(
    "turn",
    [
        Message(role="assistant", content=None, refusal="No."),
        Message(role="assistant", content=[ContentPart(type="refusal", refusal="No.")]),
    ],
)
def test_a_refusal_is_what_was_said(turn: Message) -> None:
    request = ChatCompletionRequest(messages=[*MESSAGES, turn])
    assert request.prompt(request.tool_use()).messages[1] == ChatMessage("assistant", "No.")
