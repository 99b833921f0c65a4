"""The connections between ranks, with both ends in this process."""

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pilotfish.errors import UnavailableError, UnsupportedModelError
from pilotfish.parallel.channel import SOCKET_NAME, RankChannel, RankPeer, accept_ranks, dial, listen
from pilotfish.parallel.messages import Abilities, Failed, Loaded
from pilotfish.parallel.watch import watch

LOADED = Loaded(Abilities(kernels=False, compiled=False))


def no_check() -> None: ...


def connected(folder: Path, num_ranks: int) -> tuple[RankChannel, list[RankPeer]]:
    with listen(folder) as listener:
        # The last first: they come as they please.
        peers = [dial(folder, rank, 5) for rank in range(num_ranks - 1, 0, -1)][::-1]
        return accept_ranks(listener, num_ranks, 5, no_check), peers


def test_what_a_rank_failed_with_is_raised(tmp_path: Path) -> None:
    channel, peers = connected(tmp_path, 2)
    peers[0].send(Failed("UnsupportedModelError", "too strange"))
    with pytest.raises(UnsupportedModelError, match="too strange"):
        channel.collect()


def test_a_rank_that_ends_instead_of_answering_is_named(tmp_path: Path) -> None:
    channel, peers = connected(tmp_path, 3)
    peers[0].send(LOADED)
    peers[1].close()
    with pytest.raises(UnavailableError, match="rank 2 of 3 ended"):
        channel.collect()


def test_a_lost_rank_is_noticed_at_once(tmp_path: Path) -> None:
    channel, peers = connected(tmp_path, 3)
    lost: list[int] = []
    noticed = threading.Event()
    watch(channel, lambda ranks: (lost.extend(ranks), noticed.set()))  # type: ignore[func-returns-value]
    peers[0].send(LOADED)  # what is said is no loss
    assert channel.wait_for_loss(0) == []
    assert not noticed.is_set()
    peers[1].close()
    assert noticed.wait(10)
    assert lost == [2]


def test_a_rank_does_not_wait_longer_than_who_started_it(tmp_path: Path) -> None:
    """As under Ray, where rank 0 may take an hour to download a model before it listens."""
    dials = f"print('dials', flush=True); dial(Path({str(tmp_path)!r}), 1, 3600)"
    rank = f"from pathlib import Path; from pilotfish.parallel.channel import dial; {dials}"
    starter = "import subprocess as s, sys; s.Popen(sys.argv[1:], stdout=s.PIPE).stdout.readline()"
    command = [sys.executable, "-c", starter, sys.executable, "-c", rank]
    # Its standard error is also the rank's: it is read until both have ended.
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "who started rank 1 is gone" in done.stderr


def test_ranks_that_never_come_are_named(tmp_path: Path) -> None:
    with listen(tmp_path) as listener:
        peer = dial(tmp_path, 2, 5)
        with pytest.raises(UnavailableError, match=r"ranks \[1, 3\] did not start"):
            accept_ranks(listener, 4, 0, no_check)
    peer.close()


@pytest.mark.parametrize(
    ("num_ranks", "named"), [(2, "rank 1 ended before it was ready"), (3, r"one of the ranks \[1, 2\] ended")]
)
def test_a_rank_that_connects_and_ends_is_named(tmp_path: Path, num_ranks: int, named: str) -> None:
    with listen(tmp_path) as listener:
        with socket.socket(socket.AF_UNIX) as dialled:
            dialled.connect(str(tmp_path / SOCKET_NAME))
        with pytest.raises(UnavailableError, match=named):
            accept_ranks(listener, num_ranks, 5, no_check)
