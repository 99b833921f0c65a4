import asyncio
import contextvars
import io
import json
import logging
from collections.abc import Iterator

import pytest

from pilotfish.errors import DeadlineExceededError
from pilotfish.telemetry.logs import configure_logging, set_request_ids

TRACE_ID, REQUEST_ID = "0af7651916cd43dd8448eb211c80319c", "req_1"


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """As it was, when a test is over."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def in_trace(*messages: str) -> None:
    """Log in a task of its own that has a trace."""

    def run() -> None:
        set_request_ids(trace_id=TRACE_ID, request_id=REQUEST_ID)
        for message in messages:
            logging.getLogger("pilotfish.some").warning(message)

    contextvars.copy_context().run(run)


def test_json_lines_carry_the_ids_of_their_request_only() -> None:
    stream = io.StringIO()
    configure_logging("INFO", "json", "orchestrator", stream)
    in_trace('a "quoted"\nmessage')
    logging.getLogger("pilotfish.other").info("no request")
    logging.getLogger("pilotfish.other").debug("too quiet")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["message"] == 'a "quoted"\nmessage'
    assert (first["severity"], first["logger"], first["service"]) == ("WARNING", "pilotfish.some", "orchestrator")
    assert (first["trace_id"], first["request_id"]) == (TRACE_ID, REQUEST_ID)
    assert not {"trace_id", "request_id"} & second.keys()
    assert first["timestamp"].endswith("Z")


def test_json_lines_hold_names_that_are_not_utf_8_and_stacks() -> None:
    stream = io.StringIO()
    configure_logging("INFO", "json", "orchestrator", stream)
    logging.getLogger("pilotfish.some").warning("cannot read a\udcff.json", stack_info=True)
    (line,) = stream.getvalue().splitlines()
    written = json.loads(line)
    assert written["message"] == "cannot read a\\udcff.json"
    assert "test_json_lines_hold_names" in written["stack"]


def test_lines_for_people_end_with_the_request() -> None:
    stream = io.StringIO()
    configure_logging("INFO", "human", "x", stream)
    in_trace("lost a replica")
    logging.getLogger("pilotfish").info("ready")
    first, second = stream.getvalue().splitlines()
    assert first.endswith(f"WARNING pilotfish.some: lost a replica [trace {TRACE_ID}, request {REQUEST_ID}]")
    assert second.endswith("INFO pilotfish: ready")


async def test_a_trace_is_its_tasks_own() -> None:
    stream = io.StringIO()
    configure_logging("INFO", "json", "x", stream)

    async def request(trace_id: str) -> None:
        set_request_ids(trace_id=trace_id, request_id=REQUEST_ID)
        await asyncio.sleep(0)
        logging.getLogger("pilotfish").info("from %s", trace_id)

    await asyncio.gather(*(asyncio.create_task(request(f"{number:032x}")) for number in range(3)))
    for line in stream.getvalue().splitlines():
        fields = json.loads(line)
        assert fields["message"] == f"from {fields['trace_id']}"


class ExecuteBatchError(Exception):
    """As grpc names it."""


@pytest.mark.parametrize(
    ("level", "reason", "message", "is_told"),
    [
        ("INFO", None, "(<grpc._cython.cygrpc.SendStatusFromServerOperation object at 0x7f>,)", False),
        ("DEBUG", None, "(<grpc._cython.cygrpc.SendStatusFromServerOperation object at 0x7f>,)", True),
        ("INFO", None, "(<grpc._cython.cygrpc.ReceiveMessageOperation object at 0x7f>,)", True),
        ("INFO", DeadlineExceededError("late"), "8, GRPC_CALL_ERROR_TOO_MANY_OPERATIONS", False),
        ("INFO", KeyError("ours"), "8, GRPC_CALL_ERROR_TOO_MANY_OPERATIONS", True),
    ],
)
def test_a_client_that_is_gone_and_a_status_after_the_deadline_are_no_errors(
    level: str, reason: Exception | None, message: str, is_told: bool
) -> None:
    """reason: what was handled when grpc failed."""
    stream = io.StringIO()
    configure_logging(level, "human", "orchestrator", stream)
    error = ExecuteBatchError(f"Failed: {message}")
    error.__context__ = reason
    logging.getLogger("grpc._cython.cygrpc").error("ExecuteBatchError raised in core by [/a]", exc_info=error)
    assert ("raised in core" in stream.getvalue()) is is_told
