import itertools

import pytest

from orchestrator.control.decision import Decision
from orchestrator.control.reasons import Reason
from orchestrator.rounds.draft import Draft
from orchestrator.rounds.round_log import RoundLog
from pilotfish.messages import Verdict
from pilotfish.types import Timings

DECISION = Decision(4, 1, Reason.REQUESTED)
DRAFT = Draft((1, 2, 3), elapsed_s=0.004, compute_s=0.003)


def verdict(num_draft_tokens=3, num_accepted_tokens=2, token_ids=(1, 2, 9)) -> Verdict:
    return Verdict(1, 10, num_draft_tokens, num_accepted_tokens, token_ids, timings=Timings(1_000, 5_000))


def play(log: RoundLog, num_rounds: int) -> None:
    for _ in range(num_rounds):
        log.begin(DECISION, 1.0)
        log.add(DRAFT, verdict(), 2.0)


@pytest.mark.parametrize("num_rounds", [0, 1, 7, 8, 9, 100, 1000])
def test_it_keeps_so_many_evenly_spread(num_rounds) -> None:
    log = RoundLog(8)
    play(log, num_rounds)
    numbers = [record.number for record in log.records]
    assert len(numbers) <= 8
    assert len(numbers) >= min(num_rounds, 4)
    assert len({after - before for before, after in itertools.pairwise(numbers)}) <= 1
    if numbers:
        stride = numbers[1] - numbers[0] if len(numbers) > 1 else 1
        assert numbers[0] == 0
        assert num_rounds - numbers[-1] <= stride


def test_nothing_is_kept_of_a_request_that_nobody_traces() -> None:
    log = RoundLog()
    play(log, 3)
    assert log.records == ()


def test_a_round_is_what_its_verdicts_were() -> None:
    log = RoundLog(8)
    log.begin(DECISION, 1.0)
    log.add(DRAFT, verdict(), 2.0)
    (record,) = log.records
    assert (record.num_draft_tokens, record.num_accepted_tokens, record.num_tokens) == (3, 2, 3)
    assert record.is_verification
    assert (record.propose_ns, record.drafter_ns, record.target_ns) == (4_000_000, 3_000_000, 6_000)
    assert record.start_ns <= record.end_ns


def test_a_run_that_drafts_for_itself_is_a_run() -> None:
    log = RoundLog(8)
    log.begin(DECISION, 1.0)
    for _ in range(2):
        log.add(Draft(), verdict(), 2.0)
    (record,) = log.records
    assert (record.is_verification, record.num_draft_tokens, record.target_ns) == (False, 6, 10_000)


def test_a_round_that_is_not_kept_adds_nothing_to_one_that_is() -> None:
    log = RoundLog(4)
    play(log, 100)
    assert {record.num_tokens for record in log.records} == {3}
