"""The engine's end of the socket, with the front's end in the test's hands."""

import fcntl
import resource
import socket
from collections.abc import Iterator

import pytest

from pilotfish.engine.process.wire import WorkerSocket, framed


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, WorkerSocket]]:
    front, engines = socket.socketpair()
    worker = WorkerSocket(engines.detach())
    with front:
        yield front, worker
    worker.close()


def test_everything_that_is_there_is_taken(pair: tuple[socket.socket, WorkerSocket]) -> None:
    front, worker = pair
    front.sendall(framed(b"open") + framed(b"decode"))
    assert worker.receive() == [b"open", b"decode"]
    assert worker.receive(0) == []


def test_what_is_sent_arrives_framed(pair: tuple[socket.socket, WorkerSocket]) -> None:
    front, worker = pair
    worker.send(b"verdict")
    assert front.recv(100) == framed(b"verdict")


def test_a_front_that_is_gone_ends_the_engine(pair: tuple[socket.socket, WorkerSocket]) -> None:
    front, worker = pair
    front.close()
    with pytest.raises(SystemExit):
        worker.receive()
    with pytest.raises(SystemExit):
        worker.send(b"verdict")


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= 2000, reason="fewer descriptors are allowed")
def test_a_descriptor_beyond_what_select_knows_will_do() -> None:
    front, engines = socket.socketpair()
    worker = WorkerSocket(fcntl.fcntl(engines.fileno(), fcntl.F_DUPFD, 1500))
    front.sendall(framed(b"open"))
    assert worker.receive(0) == [b"open"]
    for end in (front, engines, worker):
        end.close()
