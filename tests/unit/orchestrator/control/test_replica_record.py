"""What a replica's plain decoding takes: told by many moments, not by the many sequences of one."""

from __future__ import annotations

import pytest

from orchestrator.control.replica_record import ReplicaRecord
from pilotfish.profiles import load_profile
from pilotfish.types import LoadReport

PROFILE = load_profile("a100-70b")


def measured(num_sequences: int) -> ReplicaRecord:
    """A replica on which so many sequences decode plainly, as fast as its profile says."""
    replica = ReplicaRecord(PROFILE)
    for _ in range(num_sequences):
        replica.join()
    step_s = PROFILE.target.step_s(num_sequences, num_sequences)
    load = LoadReport(
        num_sequences_decoding=num_sequences, num_step_tokens=num_sequences, step_time_ns=round(step_s * 1e9)
    )
    replica.observe("draft", load, 0, now_s=0.0)
    for _ in range(64 * num_sequences):
        replica.add_decode(step_s)
    return replica


def test_one_slow_moment_of_many_sequences_is_no_new_price() -> None:
    replica = measured(64)
    before_s = replica.plain_s()
    for _ in range(64):
        replica.add_decode(before_s / 2)
    assert replica.plain_s() == pytest.approx(before_s)


def test_what_goes_on_is_believed() -> None:
    replica = measured(64)
    before_s = replica.plain_s()
    for _ in range(8 * 64):
        replica.add_decode(before_s / 2)
    assert replica.plain_s() == pytest.approx(before_s / 2)


def test_a_lone_sequence_is_believed_every_time() -> None:
    replica = measured(1)
    before_s = replica.plain_s()
    for _ in range(8):
        replica.add_decode(before_s / 2)
    assert replica.plain_s() == pytest.approx(before_s / 2)
