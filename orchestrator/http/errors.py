"""Errors as OpenAI's clients expect them: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType

import msgspec
from starlette.responses import Response

from pilotfish.errors import (
    AuthenticationError,
    DeadlineExceededError,
    InvalidRequestError,
    ModelNotFoundError,
    PilotfishError,
    PromptTooLongError,
    RequestTooLargeError,
    ResourceExhaustedError,
    UnavailableError,
    status_of,
)

INTERNAL_CODE = "internal_error"
INTERNAL_MESSAGE = "the server had an error of its own; its log says more"


class ApiError(msgspec.Struct):
    """What went wrong."""

    message: str
    type: str
    param: str | None = None
    """The field of the request that is wrong."""
    code: str | None = None
    """A stable identifier."""


class ErrorBody(msgspec.Struct):
    """The body of every answer that is not a success."""

    error: ApiError


# Subclasses before their parents: the first match wins.
_CODES: tuple[tuple[type[PilotfishError], str], ...] = (
    (AuthenticationError, "invalid_api_key"),
    (RequestTooLargeError, "request_too_large"),
    (PromptTooLongError, "context_length_exceeded"),
    (ModelNotFoundError, "model_not_found"),
    (ResourceExhaustedError, "rate_limit_exceeded"),
    (UnavailableError, "service_unavailable"),
    (DeadlineExceededError, "deadline_exceeded"),
)
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


def error_body(status: int, message: str, *, param: str | None = None, code: str | None = None) -> ErrorBody:
    # Half of a surrogate pair, from an escape in a request, is no text: reporting it must not fail.
    message = message.encode(errors="replace").decode()
    return ErrorBody(ApiError(message, _TYPES.get(status, "server_error"), param, code))


def error_response(status: int, body: ErrorBody, headers: Mapping[str, str]) -> Response:
    """An error outside of an exchange."""
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def renamed(text: str, param_names: Mapping[str, str]) -> str:
    """A parameter's path, or a message that begins with one, as this API calls it."""
    return re.sub(r"^\w+", lambda name: param_names.get(name.group(), name.group()), text)


def describe_error(
    error: Exception, param_names: Mapping[str, str] = MappingProxyType({})
) -> tuple[int, ErrorBody, dict[str, str]]:
    """(status, body, headers) of an error. One of no known kind reveals nothing of itself.

    param_names: how this API calls parameters that other APIs call otherwise.
    """
    if not isinstance(error, PilotfishError):
        return 500, error_body(500, INTERNAL_MESSAGE, code=INTERNAL_CODE), {}
    _, status = status_of(error)
    message, param = str(error), error.param if isinstance(error, InvalidRequestError) else None
    if isinstance(error, ModelNotFoundError):
        param = "model"
    if param is not None:
        message, param = renamed(message, param_names), renamed(param, param_names)
    code = next((code for kind, code in _CODES if isinstance(error, kind)), None)
    headers = {}
    if isinstance(error, ResourceExhaustedError) and error.retry_after_s is not None:
        # OpenAI's clients read the finer one first.
        headers = {
            "retry-after": str(math.ceil(error.retry_after_s)),
            "retry-after-ms": str(math.ceil(error.retry_after_s * 1000)),
        }
    elif isinstance(error, DeadlineExceededError):
        # OpenAI's clients would ask three times over: nobody waits that long.
        headers = {"x-should-retry": "false"}
    return status, error_body(status, message, param=param, code=code), headers
