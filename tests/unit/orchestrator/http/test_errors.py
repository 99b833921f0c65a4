import msgspec
import pytest

from orchestrator.http.errors import INTERNAL_MESSAGE, describe_error
from pilotfish.errors import (
    DeadlineExceededError,
    InternalError,
    InvalidRequestError,
    ModelNotFoundError,
    PromptTooLongError,
    RequestTooLargeError,
    ResourceExhaustedError,
    UnavailableError,
)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (InvalidRequestError("x", param="n"), 400, "invalid_request_error", None),
        (PromptTooLongError("x"), 400, "invalid_request_error", "context_length_exceeded"),
        (RequestTooLargeError("x"), 413, "invalid_request_error", "request_too_large"),
        (ModelNotFoundError("x"), 404, "invalid_request_error", "model_not_found"),
        (ResourceExhaustedError("x"), 429, "rate_limit_error", "rate_limit_exceeded"),
        (UnavailableError("x"), 503, "service_unavailable_error", "service_unavailable"),
        (DeadlineExceededError("x"), 504, "timeout_error", "deadline_exceeded"),
        (InternalError("x"), 500, "server_error", None),
    ],
)
def test_each_kind(error: Exception, status: int, kind: str, code: str | None) -> None:
    described, body, _ = describe_error(error)
    assert (described, body.error.type, body.error.code, body.error.message) == (status, kind, code, "x")


def test_an_error_of_no_known_kind_tells_nothing() -> None:
    status, body, _ = describe_error(KeyError("/secret/path"))
    assert (status, body.error.message) == (500, INTERNAL_MESSAGE)


def test_a_full_queue_says_when_to_come_back() -> None:
    error = ResourceExhaustedError("full")
    assert describe_error(error)[2] == {}
    error.retry_after_s = 1.2501
    assert describe_error(error)[2] == {"retry-after": "2", "retry-after-ms": "1251"}


def test_nobody_is_to_wait_for_a_deadline_again() -> None:
    assert describe_error(DeadlineExceededError("late"))[2] == {"x-should-retry": "false"}


def test_a_parameter_has_the_name_that_this_api_gives_it() -> None:
    error = InvalidRequestError("x", param="prompt")
    assert describe_error(error)[1].error.param == "prompt"
    assert describe_error(error, {"prompt": "messages"})[1].error.param == "messages"
    inner = InvalidRequestError("a.b is 0; prompt or a.b", param="a.b")
    told = describe_error(inner, {"a": "x.y"})[1].error
    assert (told.param, told.message) == ("x.y.b", "x.y.b is 0; prompt or a.b")


def test_any_message_can_be_sent() -> None:
    _, body, _ = describe_error(InvalidRequestError("é \ud83d 😀"))
    assert msgspec.json.decode(msgspec.json.encode(body))["error"]["message"] == "é ? 😀"
