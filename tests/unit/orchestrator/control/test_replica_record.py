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


def speculating(replica: ReplicaRecord, num_sequences: int) -> None:
    """So many of its sequences verify four draft tokens each step."""
    for _ in range(num_sequences):
        replica.change_rows(1, 5)


def test_a_run_among_those_who_speculate_says_nothing_of_plain_decoding() -> None:
    """It waits for their longer steps and for their drafts: plain decoding would seem slow for good."""
    replica = measured(32)
    before_s = replica.plain_s()
    speculating(replica, 31)
    for _ in range(8 * 32):
        replica.add_decode(2 * before_s)
    assert replica.plain_s() == pytest.approx(before_s)


def test_where_nobody_decodes_plainly_measuring_has_an_end() -> None:
    replica = ReplicaRecord()
    for _ in range(4):
        replica.join()
    speculating(replica, 3)
    assert replica.take_measurement()
    replica.add_decode(0.02)
    assert not replica.take_measurement()


@pytest.mark.parametrize(("num_sequences", "is_due"), [(1, True), (4, False)])
def test_only_a_lone_sequence_interrupts_speculation_to_measure(num_sequences: int, is_due: bool) -> None:
    replica = measured(num_sequences)
    speculating(replica, num_sequences)
    replica.count_verifications(511)
    assert not replica.take_measurement()
    replica.count_verifications(1)
    assert replica.take_measurement() == is_due


def test_a_first_measurement_beside_prefills_is_not_believed_for_ever() -> None:
    replica = ReplicaRecord(PROFILE)
    for _ in range(4):
        replica.join()
    step_s = PROFILE.target.step_s(4, 4)
    load = LoadReport(num_sequences_decoding=4, num_step_tokens=4, step_time_ns=round(step_s * 1e9))
    replica.observe("draft", load, 0, now_s=0.0)
    replica.add_decode(10 * step_s)
    assert replica.plain_s() == pytest.approx(10 * step_s)
    speculating(replica, 4)
    replica.count_verifications(512)
    replica.take_measurement()
    assert replica.plain_s() == pytest.approx(step_s)


def test_sequences_of_other_orchestrators_may_speculate() -> None:
    replica = measured(1)
    before_s = replica.plain_s()
    load = LoadReport(num_sequences_decoding=31, num_step_tokens=31, step_time_ns=round(before_s * 1e9))
    replica.observe("draft", load, 30, now_s=1.0)
    priced_s = replica.plain_s()
    for _ in range(20):
        replica.add_decode(2 * before_s)
    assert replica.plain_s() == pytest.approx(priced_s)
    replica.count_verifications(512)
    assert not replica.take_measurement()
