"""One logging setup for all services: lines for people or for machines, with the request that they are about."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Literal, TextIO

import msgspec

from pilotfish.errors import DeadlineExceededError

_ids: ContextVar[Mapping[str, str]] = ContextVar("pilotfish_ids", default=MappingProxyType({}))
"""Ids by their names in JSON."""


def set_request_ids(*, trace_id: str, request_id: str) -> None:
    """What this task, and the tasks that it starts, logs from now on is about this request."""
    _ids.set({"trace_id": trace_id, "request_id": request_id})


def configure_logging(
    level: str, log_format: Literal["human", "json"], service: str, stream: TextIO | None = None
) -> None:
    """Set up this process's root logger, replacing what was set up before. stream: standard error by default."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(service) if log_format == "json" else HumanFormatter())
    if level != "DEBUG":
        handler.addFilter(_is_worth_logging)
    root = logging.getLogger()
    for old in tuple(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Whether a person should see it. gRPC logs an error where a client was gone, by its deadline or a cancel, when its
    call's status was to be sent, or where a message was still on its way at the deadline: nobody has to do anything
    about that, and an operator would look for a fault of ours."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None or record.name != "grpc._cython.cygrpc" or type(error).__name__ != "ExecuteBatchError":
        return True
    is_late = isinstance(error.__context__, DeadlineExceededError)
    return not is_late and "SendStatusFromServerOperation" not in str(error)


class HumanFormatter(logging.Formatter):
    """`time level name: message`, and at the end the trace and the request where there are any."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        ids = ", ".join(f"{name.removesuffix('_id')} {value}" for name, value in _ids.get().items())
        message = super().formatMessage(record)
        return f"{message} [{ids}]" if ids else message


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the field names of OpenTelemetry's log data model in snake case."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "timestamp": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "severity": record.levelname,
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
            **_ids.get(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        try:
            return msgspec.json.encode(fields).decode()
        except UnicodeEncodeError:  # the name of a file that is not UTF-8: Python has its bytes as lone surrogates
            return msgspec.json.encode({name: _as_utf8(text) for name, text in fields.items()}).decode()


def _as_utf8(text: str) -> str:
    """The text, with an escape for each character that UTF-8 has not."""
    return text.encode("utf-8", "backslashreplace").decode()
