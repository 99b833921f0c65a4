"""A benchmark's peer that ends, or says nothing, is an error."""

import sys

import pytest

from benchmarks.shared import peer_process
from pilotfish.config import environment
from pilotfish.errors import UnavailableError


@pytest.mark.parametrize(
    ("last_act", "timeout_s", "said"),
    [("sys.exit('out of memory')", 60, "exit code 1: out of memory"), ("time.sleep(600)", 0.1, "exit code -9")],
    ids=["dies", "stays silent"],
)
def test_a_peer_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, last_act: str, timeout_s: float, said: str
) -> None:
    monkeypatch.setattr(peer_process, "ANSWER_TIMEOUT_S", timeout_s)
    argv = [sys.executable, "-c", f"import sys, time; print('{{}}', flush=True); input(); {last_act}"]
    with (
        peer_process.PeerProcess("peer", argv, environment()) as peer,
        pytest.raises(UnavailableError, match=said),
    ):
        peer.ask([[1]], max_tokens=1)
