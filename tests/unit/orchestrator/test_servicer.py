import pytest

from orchestrator.servicer import CLIENT_ID_KEY, MAX_CLIENT_ID_CHARACTERS, caller_of


class FakeContext:
    """A call as gRPC shows it."""

    def __init__(self, *metadata, peer="ipv4:10.0.0.7:51000", time_remaining=None) -> None:
        self._metadata = metadata
        self._peer = peer
        self._time_remaining = time_remaining

    def invocation_metadata(self):
        return self._metadata

    def peer(self):
        return self._peer

    def time_remaining(self):
        return self._time_remaining


def test_the_metadata_name_the_client() -> None:
    caller = caller_of(FakeContext(("user-agent", "x"), (CLIENT_ID_KEY, "team-a"), time_remaining=2.5), 7)
    assert (caller.client_id, caller.arrival_ns, caller.timeout_s) == ("team-a", 7, 2.5)


@pytest.mark.parametrize(
    ("peer", "client_id"),
    [("ipv4:10.0.0.7:51000", "ipv4:10.0.0.7"), ("ipv6:%5B::1%5D:51000", "ipv6:%5B::1%5D"), ("unix:", "unix")],
)
def test_else_the_host_is_the_client_whatever_its_port(peer, client_id) -> None:
    assert caller_of(FakeContext(peer=peer), 0).client_id == client_id


def test_an_empty_name_is_no_name_and_an_endless_one_is_cut() -> None:
    assert caller_of(FakeContext((CLIENT_ID_KEY, "")), 0).client_id == "ipv4:10.0.0.7"
    assert len(caller_of(FakeContext((CLIENT_ID_KEY, "x" * 10_000)), 0).client_id) == MAX_CLIENT_ID_CHARACTERS
    assert caller_of(FakeContext(), 0).timeout_s is None
