"""The exception tree.

    PilotfishError
    ├── InvalidRequestError (ValueError)   the caller's request cannot be served as asked
    │   └── PromptTooLongError             prompt (plus one token) exceeds the context
    │       └── RequestTooLargeError       more bytes than are read at all
    ├── ConfigError (ValueError)           a configuration file or flag is wrong
    ├── ModelError                         a model cannot be had or used
    │   ├── ModelNotFoundError             no such name, folder or file
    │   ├── ModelDownloadError             the download broke off or its checksum is wrong
    │   └── UnsupportedModelError          the engine cannot run this architecture
    ├── HandshakeError                     a peer speaks another protocol or has another tokenizer
    ├── AuthenticationError                the caller has not shown that it may ask
    ├── UnavailableError                   a replica is absent, draining or lost
    ├── ResourceExhaustedError             no KV space, no sequence slot, queue full
    ├── DeadlineExceededError              an answer did not come in time
    └── InternalError                      a fault of our own

The table below maps each to the gRPC status name and the HTTP status that clients see.
"""

from __future__ import annotations


class PilotfishError(Exception):
    """Root of the tree. The message says what happened and what to do."""


class InvalidRequestError(PilotfishError, ValueError):
    """The caller's request cannot be served as asked."""

    param: str | None = None
    """The request's field that is wrong, where it is one."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class PromptTooLongError(InvalidRequestError):
    """The prompt leaves no room for a single output token."""


class RequestTooLargeError(PromptTooLongError):
    """The request has more bytes than are read at all."""


class ConfigError(PilotfishError, ValueError):
    """A configuration file or flag is wrong."""


class ModelError(PilotfishError):
    """A model cannot be had or used."""


class ModelNotFoundError(ModelError):
    """No such catalogue name, folder or file."""


class ModelDownloadError(ModelError):
    """The download broke off, or what came is not what was promised."""


class UnsupportedModelError(ModelError):
    """The engine cannot run this architecture or weight format."""

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message
        """Why, as a part of a sentence."""


class HandshakeError(PilotfishError):
    """A peer speaks another protocol version, or has another tokenizer or model."""


class AuthenticationError(PilotfishError):
    """The caller has shown no key, token or certificate, or a wrong one."""


class UnavailableError(PilotfishError):
    """A replica is absent, draining or lost."""


class ResourceExhaustedError(PilotfishError):
    """No KV space, no sequence slot, or a full queue: try again later."""

    retry_after_s: float | None = None
    """When trying again may succeed; None: nobody knows. HTTP's Retry-After and gRPC's `retry-after-ms`."""


class DeadlineExceededError(PilotfishError):
    """An answer did not come in time."""


class InternalError(PilotfishError):
    """A fault of our own."""


# Subclasses before their parents: the first match wins.
STATUS_TABLE: tuple[tuple[type[PilotfishError], str, int], ...] = (
    (RequestTooLargeError, "INVALID_ARGUMENT", 413),
    (InvalidRequestError, "INVALID_ARGUMENT", 400),
    (ConfigError, "INVALID_ARGUMENT", 400),
    (ModelNotFoundError, "NOT_FOUND", 404),
    (ModelDownloadError, "UNAVAILABLE", 503),
    (UnsupportedModelError, "FAILED_PRECONDITION", 501),
    (ModelError, "FAILED_PRECONDITION", 500),
    (HandshakeError, "FAILED_PRECONDITION", 502),
    (AuthenticationError, "UNAUTHENTICATED", 401),
    (UnavailableError, "UNAVAILABLE", 503),
    (ResourceExhaustedError, "RESOURCE_EXHAUSTED", 429),
    (DeadlineExceededError, "DEADLINE_EXCEEDED", 504),
    (PilotfishError, "INTERNAL", 500),
)


def status_of(error: PilotfishError) -> tuple[str, int]:
    """The gRPC status name and the HTTP status of an error."""
    for kind, grpc_status, http_status in STATUS_TABLE:
        if isinstance(error, kind):
            return grpc_status, http_status
    raise AssertionError("STATUS_TABLE ends with the root of the tree")


def error_named(kind: str, message: str) -> PilotfishError:
    """The error whose class has this name, which another process sent; InternalError if there is none."""
    found = globals().get(kind)
    if isinstance(found, type) and issubclass(found, PilotfishError):
        return found(message)
    return InternalError(message)
