"""Who goes when there are too many, by address."""

import pytest

from orchestrator.http.connections import Connections
from pilotfish.config import PublicSecurityConfig


class Peer:
    def __init__(self) -> None:
        self.is_open = True

    def abort(self) -> None:
        self.is_open = False


def connections(total: int, per_address: int) -> Connections:
    return Connections(PublicSecurityConfig(max_connections=total, max_connections_per_address=per_address))


def admitted(held: Connections, *hosts: str) -> list[Peer]:
    peers = [Peer() for _ in hosts]
    for peer, host in zip(peers, hosts, strict=True):
        assert held.admit(peer, host)
    return peers


def test_an_address_has_its_share_and_the_others_theirs() -> None:
    held = connections(4, 2)
    other, *own = admitted(held, "10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.2")
    assert [peer.is_open for peer in (other, *own)] == [True, False, True, True]
    for peer in own[1:]:
        held.answer(peer)
    assert not held.admit(Peer(), "10.0.0.2")
    assert held.admit(Peer(), "10.0.0.1")


def test_of_all_it_is_the_longest_wait_that_ends() -> None:
    held = connections(3, 3)
    first, second, third = admitted(held, "10.0.0.1", "10.0.0.2", "10.0.0.3")
    held.answer(first)
    held.wait(first)
    admitted(held, "10.0.0.4")
    assert [first.is_open, second.is_open, third.is_open] == [True, False, True]


def test_who_leaves_makes_room_once() -> None:
    held = connections(2, 2)
    first, second = admitted(held, "10.0.0.1", "10.0.0.1")
    held.answer(second)
    held.remove(first)
    held.remove(first)
    (third,) = admitted(held, "10.0.0.1")
    held.answer(third)
    assert not held.admit(Peer(), "10.0.0.1")
    assert second.is_open


@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        ("2001:db8::1", "2001:db8:0:0:ffff::1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("", "", True),
    ],
)
def test_what_an_address_is(one: str, other: str, are_one: bool) -> None:
    held = connections(8, 1)
    (first,) = admitted(held, one)
    held.answer(first)
    assert held.admit(Peer(), other) is not are_one
