"""What a replica's plain decoding takes: told by many moments, not by the many sequences of one."""

from __future__ import annotations

import msgspec
import pytest

from orchestrator.control.replica_record import ReplicaRecord
from pilotfish.profiles import load_profile
from pilotfish.types import LoadReport

PROFILE = load_profile("a100-70b")


def step(num_sequences: int, num_tokens: int, seconds: float) -> LoadReport:
    return LoadReport(
        num_sequences_decoding=num_sequences, num_step_tokens=num_tokens, step_time_ns=round(seconds * 1e9)
    )


def measured(num_sequences: int) -> ReplicaRecord:
    """A replica on which so many sequences decode plainly, as fast as its profile says."""
    replica = ReplicaRecord(PROFILE)
    for _ in range(num_sequences):
        replica.join()
    step_s = PROFILE.target.step_s(num_sequences, num_sequences)
    replica.observe("draft", step(num_sequences, num_sequences, step_s), 0, now_s=0.0)
    for _ in range(64 * num_sequences):
        replica.add_decode(step_s)
    return replica


def test_the_same_report_teaches_once() -> None:
    replica = measured(4)
    before_s = replica.plain_s()
    slow = step(4, 4, 2 * before_s)
    for _ in range(100):
        replica.observe("draft", slow, 0, now_s=1.0)
    assert replica.plain_s() == pytest.approx(before_s)
    for _ in range(100):
        replica.observe("draft", step(4, 4, 2 * before_s), 0, now_s=1.0)
    assert replica.plain_s() == pytest.approx(2 * before_s)


def mixed(num_sequences: int, num_tokens: int, seconds: float, num_prefill_tokens: int, prefill_s: float) -> LoadReport:
    """A step with a prefill that made it so much longer."""
    return msgspec.structs.replace(
        step(num_sequences, num_tokens + num_prefill_tokens, seconds + prefill_s),
        num_step_prefill_tokens=num_prefill_tokens,
        step_prefill_time_ns=round(prefill_s * 1e9),
    )


def test_prefills_are_left_out_of_what_plain_decoding_takes() -> None:
    replica = measured(4)
    plain_s = replica.plain_s()
    for _ in range(100):
        replica.observe("draft", mixed(4, 4, plain_s, 500, 0.04), 0, now_s=1.0)
        replica.add_decode(plain_s)
    assert replica.plain_s() == pytest.approx(plain_s)


def test_a_time_that_cannot_be_told_teaches_nothing() -> None:
    replica = measured(2)
    plain_s = replica.plain_s()
    for _ in range(100):
        replica.add_decode(0.0)
        replica.add_decode(-0.001)
    assert replica.plain_s() == plain_s
    speculating(replica, 2)
    for _ in range(100):
        replica.observe("draft", step(2, 10, plain_s), 0, now_s=1.0)
        replica.add_round("draft", 4, 0.0, 5)
        replica.add_round("draft", 4, -0.001, 5)
    assert replica.prices("draft", 4, lambda depth: depth).rounds_s[4] > plain_s


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


def test_one_run_is_believed_in_part() -> None:
    replica = measured(1)
    before_s = replica.plain_s()
    replica = ReplicaRecord(PROFILE)
    replica.join()
    replica.observe("draft", step(1, 1, before_s), 0, now_s=0.0)
    for num_runs in range(1, 8):
        replica.add_decode(1.5 * before_s)
        assert replica.plain_s() == pytest.approx((1 + 0.1 * min(num_runs, 5)) * before_s)


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
        replica.change_speculating(1)


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


def test_the_moment_between_two_requests_leaves_nobody_alone() -> None:
    replica = measured(2)
    speculating(replica, 2)
    replica.leave(5, 0.0, is_speculating=True)
    replica.count_verifications(512)
    assert not replica.take_measurement()
    replica.see(1.0)
    replica.count_verifications(512)
    assert replica.take_measurement()


def test_those_who_have_just_left_were_here_until_then_however_long_ago_they_told() -> None:
    replica = measured(64)
    for _ in range(64):
        replica.leave(1, 3.0, is_speculating=False)
    replica.see(3.1)
    assert replica.decode_load == 64
    replica.see(3.6)
    assert replica.decode_load == 1


def doubted(ratio: float) -> ReplicaRecord:
    """One on which four speculate, whose only plain runs took ratio times their steps."""
    replica = ReplicaRecord(PROFILE)
    for _ in range(4):
        replica.join()
    step_s = PROFILE.target.step_s(4, 4)
    replica.observe("draft", step(4, 4, step_s), 0, now_s=0.0)
    for _ in range(16):
        replica.add_decode(ratio * step_s)
    assert replica.plain_s() == pytest.approx(ratio * step_s)
    speculating(replica, 4)
    return replica


def test_a_first_measurement_beside_prefills_is_not_believed_for_ever() -> None:
    replica, step_s = doubted(10.0), PROFILE.target.step_s(4, 4)
    replica.count_verifications(512)
    replica.take_measurement()
    assert replica.plain_s() == pytest.approx(step_s)


def test_sequences_of_other_orchestrators_may_speculate() -> None:
    replica = measured(1)
    before_s = replica.plain_s()
    replica.observe("draft", step(31, 31 * 5, before_s), 30, now_s=1.0)
    priced_s = replica.plain_s()
    for _ in range(20):
        replica.add_decode(2 * before_s)
    assert replica.plain_s() == pytest.approx(priced_s)
    replica.count_verifications(512)
    assert not replica.take_measurement()


def test_steps_without_a_draft_tell_that_other_orchestrators_decode_plainly() -> None:
    replica = ReplicaRecord(PROFILE)
    replica.join()
    step_s = PROFILE.target.step_s(8, 8)
    for _ in range(20):
        replica.observe("draft", step(8, 8, step_s), 7, now_s=0.0)
        replica.add_decode(1.25 * step_s)
    assert replica.plain_s() == pytest.approx(1.25 * step_s)
    for number in range(20):
        load = step(8, 8, step_s) if number % 4 else mixed(8, 8, step_s, 256, 0.02)
        replica.observe("draft", load, 7, now_s=0.0)
        replica.add_decode(1.2 * step_s)
    assert replica.plain_s() == pytest.approx(1.2 * step_s)
    for _ in range(20):
        replica.observe("draft", step(8, 12, step_s), 7, now_s=0.0)
    for _ in range(20):
        replica.add_decode(2 * step_s)
    assert replica.plain_s() == pytest.approx(1.2 * step_s), "somebody speculates again"


def test_a_plain_run_that_is_not_believed_puts_off_no_doubt_of_the_first() -> None:
    replica = doubted(10.0)
    for _ in range(512):
        replica.count_verifications(1)
        replica.add_decode(0.02)
    replica.take_measurement()
    assert replica.plain_s() == pytest.approx(PROFILE.target.step_s(4, 4))


def test_what_is_measured_again_is_doubted_ever_more_seldom() -> None:
    replica = doubted(1.25)
    assert [verifications_until_doubt(replica, 1.25) for _ in range(4)] == [512, 512, 1024, 2048]
    assert verifications_until_doubt(replica, 3.0) == 4096
    assert verifications_until_doubt(replica, 1.25) == 8192, "the doubt of another price comes as late"
    assert verifications_until_doubt(replica, 1.25) == 512, "and begins anew"


def verifications_until_doubt(replica: ReplicaRecord, ratio: float) -> int:
    """Then this is measured."""
    before_s, num_verifications = replica.plain_s(), 0
    while replica.plain_s() == before_s:
        num_verifications += 64
        replica.count_verifications(64)
        replica.take_measurement()
    for _ in range(4):
        replica.change_rows(5, 1)
        replica.change_speculating(-1)
    for _ in range(32):
        replica.add_decode(ratio * PROFILE.target.step_s(4, 4))
    for _ in range(4):
        replica.change_rows(1, 5)
        replica.change_speculating(1)
    return num_verifications
