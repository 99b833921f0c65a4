import contextvars
from typing import Any

import pytest

from orchestrator import servicer
from orchestrator.api_security import MAX_CLIENT_ID_CHARACTERS, Authenticator
from orchestrator.requests.caller import Caller
from orchestrator.servicer import CLIENT_ID_KEY
from pilotfish.config import PublicSecurityConfig
from pilotfish.errors import AuthenticationError
from pilotfish.security.api_key import ApiKey, digest_of
from pilotfish.security.api_key_file import write_keys

NOBODY = Authenticator(PublicSecurityConfig())


class FakeContext:
    """A call as gRPC shows it."""

    def __init__(self, *metadata, peer="ipv4:10.0.0.7:51000", time_remaining=None) -> None:
        self._metadata = metadata
        self._peer = peer
        self._time_remaining = time_remaining
        self.trailing = {}

    def set_trailing_metadata(self, metadata):
        self.trailing = dict(metadata)

    def invocation_metadata(self):
        return self._metadata

    def peer(self):
        return self._peer

    def time_remaining(self):
        return self._time_remaining


def caller_of(context: Any, arrival_ns: int, authenticator: Authenticator) -> Caller:
    """As within a call's own task: it says there which request is logged about."""
    return contextvars.copy_context().run(servicer.caller_of, context, arrival_ns, authenticator)


def test_the_metadata_name_the_client() -> None:
    caller = caller_of(FakeContext(("user-agent", "x"), (CLIENT_ID_KEY, "team-a"), time_remaining=2.5), 7, NOBODY)
    assert (caller.client_id, caller.arrival_ns, caller.timeout_s) == ("team-a", 7, 2.5)


def test_the_answer_says_what_the_request_is_called() -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    context = FakeContext(("x-request-id", "mine"), ("traceparent", f"00-{trace_id}-b7ad6b7169203331-01"))
    assert caller_of(context, 0, NOBODY).identity.request_id == "mine"
    assert context.trailing == {"x-request-id": "mine", "x-trace-id": trace_id}


@pytest.mark.parametrize(
    ("peer", "client_id"),
    [("ipv4:10.0.0.7:51000", "ipv4:10.0.0.7"), ("ipv6:%5B::1%5D:51000", "ipv6:%5B::1%5D"), ("unix:", "unix")],
)
def test_else_the_host_is_the_client_whatever_its_port(peer, client_id) -> None:
    assert caller_of(FakeContext(peer=peer), 0, NOBODY).client_id == client_id


def test_a_key_names_the_client_whatever_it_claims(tmp_path) -> None:
    write_keys(tmp_path / "keys", [ApiKey(name="ann", sha256=digest_of("pf-1"))])
    authenticator = Authenticator(PublicSecurityConfig(api_keys_file=str(tmp_path / "keys")))
    metadata = (("authorization", "Bearer pf-1"), (CLIENT_ID_KEY, "bob"))
    caller = caller_of(FakeContext(*metadata), 0, authenticator)
    assert caller.client_id == "key ann"
    assert caller.allowance is not None
    assert caller.allowance.key.name == "ann"
    for wrong in ((), (("authorization", "Bearer pf-2"),), (("authorization", "pf-1"),)):
        with pytest.raises(AuthenticationError):
            caller_of(FakeContext(*wrong), 0, authenticator)


def test_an_empty_name_is_no_name_and_an_endless_one_is_cut() -> None:
    assert caller_of(FakeContext((CLIENT_ID_KEY, "")), 0, NOBODY).client_id == "ipv4:10.0.0.7"
    assert len(caller_of(FakeContext((CLIENT_ID_KEY, "x" * 10_000)), 0, NOBODY).client_id) == MAX_CLIENT_ID_CHARACTERS
    assert caller_of(FakeContext(), 0, NOBODY).timeout_s is None
