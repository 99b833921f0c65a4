"""One logging setup for all services: lines for people or for machines, with the trace that they belong to."""

from __future__ import annotations

import logging
import sys
import time
from contextvars import ContextVar
from typing import Literal, TextIO

import msgspec

from pilotfish.errors import DeadlineExceededError

_trace_id: ContextVar[str] = ContextVar("pilotfish_trace_id", default="")


def set_trace_id(trace_id: str) -> None:
    """What this task, and the tasks that it starts, logs from now on belongs to this trace."""
    _trace_id.set(trace_id)


def configure_logging(
    level: str, log_format: Literal["human", "json"], service: str, stream: TextIO | None = None
) -> None:
    """Set up this process's root logger, replacing what was set up before. stream: standard error by default."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(service) if log_format == "json" else HumanFormatter())
    if level != "DEBUG":
        handler.addFilter(_is_worth_telling)
    root = logging.getLogger()
    for old in tuple(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)


def _is_worth_telling(record: logging.LogRecord) -> bool:
    """gRPC logs an error where a client was gone, by its deadline or a cancel, when its call's status was to be sent,
    or where a message was still on its way at the deadline: nobody has to do anything about that, and an operator would
    look for a fault of ours."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None or record.name != "grpc._cython.cygrpc" or type(error).__name__ != "ExecuteBatchError":
        return True
    is_late = isinstance(error.__context__, DeadlineExceededError)
    return not is_late and "SendStatusFromServerOperation" not in str(error)


class HumanFormatter(logging.Formatter):
    """`time level name: message`, and the trace id at the end where there is one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        trace_id = _trace_id.get()
        message = super().formatMessage(record)
        return f"{message} [trace {trace_id}]" if trace_id else message


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
        }
        trace_id = _trace_id.get()
        if trace_id:
            fields["trace_id"] = trace_id
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()
