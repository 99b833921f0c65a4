"""What the headers of a request tell of its sender."""

import pytest
from starlette.requests import Request

from orchestrator.http.caller import CLIENT_ID_HEADER, TIMEOUT_HEADER, caller_of
from orchestrator.requests.identity import RequestIdentity
from pilotfish.errors import InvalidRequestError


def request(host: str | None = "10.0.0.7", **headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    scope = {"type": "http", "headers": raw, "client": None if host is None else (host, 51000)}
    return Request({**scope, "pilotfish.identity": RequestIdentity.of(headers)})


def test_who_asks_and_within_which_trace() -> None:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    caller = caller_of(request(**{CLIENT_ID_HEADER: "team-a", "traceparent": traceparent}))
    assert caller.client_id == "team-a"
    assert f"{caller.identity.trace.trace_id:032x}" in traceparent
    assert caller_of(request()).client_id == "10.0.0.7"
    assert caller_of(request(host=None)).client_id == ""


def test_how_long_it_waits() -> None:
    assert caller_of(request()).timeout_s is None
    assert caller_of(request(**{TIMEOUT_HEADER: "1500"})).timeout_s == 1.5


@pytest.mark.parametrize("text", ["", "0", "-5", "1.5", "10s", "\xb2", "9" * 400])
def test_a_time_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="whole number of milliseconds") as failure:
        caller_of(request(**{TIMEOUT_HEADER: text}))
    assert failure.value.param == TIMEOUT_HEADER
