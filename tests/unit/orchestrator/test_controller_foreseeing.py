"""What a controller decides before the round that it follows is over, and when that does not hold."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from orchestrator.control.decision import Decision, Observation
from orchestrator.control.measurements import Measurements
from orchestrator.control.reasons import Reason
from orchestrator.control.window import MedianWindow
from orchestrator.controller import Controller
from orchestrator.requests.request import GenerationRequest, Mode, SpeculationOptions
from pilotfish.config import SpeculationConfig
from pilotfish.types import LoadReport, SamplingParams

REPLICA = "target-a"
STEP_S, VERIFY_S = 0.01, 0.012
K = 4

NO_ANSWER = {"num_draft_tokens": 0, "num_accepted_tokens": 0, "num_decoded_tokens": 1, "num_committed_tokens": 1}


def step_s(num_rows: int) -> float:
    """STEP_S of one row, VERIFY_S of a whole draft."""
    return STEP_S + (VERIFY_S - STEP_S) * (num_rows - 1) / K


def measured() -> Measurements:
    """What one sequence alone knows."""
    measurements = Measurements()
    replica = measurements.replica(REPLICA)
    for rows in range(1, K + 2):
        replica.costs.add_step(1, rows, step_s(rows))
    replica.add_decode(STEP_S)
    return measurements


def controller(measurements: Measurements, mode: Mode = "auto", **config) -> Controller:
    request = GenerationRequest(
        prompt_token_ids=(1,),
        sampling=SamplingParams(max_tokens=1000),
        speculation=SpeculationOptions(mode=mode),
        num_speculative_tokens=K,
    )
    return Controller(request, measurements, SpeculationConfig(**config))


class Rounds:
    """One request, round by round: of each draft all but num_rejected tokens are accepted."""

    def __init__(self, mode: Mode = "auto", *, foresees: bool = True, **config) -> None:
        self.measurements = measured()
        self.controller = controller(self.measurements, mode, **config)
        self._foresees = foresees
        self._seconds = itertools.count(1)
        self.decision = self.controller.next_k(self._observed(num_decoded_tokens=16, step_s=0.16, token_s=STEP_S))
        self._wait()

    def _wait(self) -> None:
        if self._foresees:
            self.controller.note_draft(self.decision.num_draft_tokens)
            self.controller.catch_up()

    @property
    def has_foreseen(self) -> bool:
        """Whether the next decision is made already."""
        return self.controller._foreseen is not None

    def _observed(self, **values) -> Observation:
        defaults = {"num_output_tokens": 100, "num_remaining_tokens": 800, "replica_id": REPLICA}
        rows = values.get("num_draft_tokens", 0) + 1
        step_ns = round(1e9 * step_s(rows))
        values["target_load"] = LoadReport(step_time_ns=step_ns, num_sequences_decoding=1, num_step_tokens=rows)
        return Observation(**({"now_s": next(self._seconds) * STEP_S} | defaults | values))

    def take(self, num_rejected: int = 0, **values) -> Decision:
        """The decision after the round that was decided for last, of which `values` are special."""
        k = self.decision.num_draft_tokens
        if k:
            accepted = max(0, k - num_rejected)
            shown = {"num_requested_tokens": k, "num_draft_tokens": k, "num_accepted_tokens": accepted}
            shown |= {"num_committed_tokens": accepted + 1, "step_s": step_s(k + 1)}
        else:
            shown = {"num_decoded_tokens": self.decision.num_decode_tokens, "token_s": STEP_S}
            shown |= {"step_s": STEP_S * self.decision.num_decode_tokens}
        self.decision = self.controller.next_k(self._observed(**(shown | values)))
        self._wait()
        return self.decision

    @property
    def prices(self) -> Sequence[float]:
        """Of rounds by their draft length."""
        replica = self.measurements.replica(REPLICA)
        return replica.prices("draft", K, lambda depth: depth).rounds_s

    @property
    def acceptance(self) -> tuple[float, ...]:
        """As all requests know it."""
        return self.measurements.proposer("draft").acceptance.probabilities(K)


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_what_is_foreseen_is_what_would_have_been_decided_and_every_round_is_learned_once(mode: Mode) -> None:
    foreseeing, waiting = Rounds(mode), Rounds(mode, foresees=False)
    for number in range(60):
        assert foreseeing.has_foreseen, number
        num_rejected = number % 3
        assert foreseeing.take(num_rejected) == waiting.take(num_rejected)
    assert foreseeing.acceptance == waiting.acceptance
    assert foreseeing.prices == waiting.prices


def test_rounds_are_measured_against_the_rows_that_they_had() -> None:
    """Short drafts between whole ones, and questions that have no answer."""
    foreseeing, waiting = Rounds("on"), Rounds("on", foresees=False)
    for number in range(200):
        special = [{}, {"num_remaining_tokens": 2}, NO_ANSWER][number % 3]
        for rounds in (foreseeing, waiting):
            rounds.take(**special)
    assert foreseeing.prices == pytest.approx(waiting.prices)


def test_the_round_before_a_foreseen_decision_is_learned_afterwards() -> None:
    subject = Rounds()
    subject.take()
    before = subject.acceptance
    subject.controller.next_k(subject._observed(num_requested_tokens=K, num_draft_tokens=K, step_s=VERIFY_S))
    assert subject.acceptance == before, "the target does not wait for this"
    subject.controller.catch_up()
    assert subject.acceptance < before


def test_without_catching_up_nothing_is_foreseen() -> None:
    subject = Rounds(foresees=False)
    before = subject.acceptance
    subject.take(num_rejected=K)
    assert subject.acceptance < before


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"drafter_absence": "there is none"}, Reason.NO_DRAFTER),
        ({"is_drafter_saturated": True}, Reason.DRAFT_POOL_SATURATED),
        ({"num_remaining_tokens": 1}, Reason.LAST_TOKEN),
    ],
)
def test_what_is_foreseen_gives_way_to_what_happens(values, reason: Reason) -> None:
    subject = Rounds()
    subject.take()
    assert subject.has_foreseen
    assert subject.take(**values).reason is reason


def test_no_more_is_foreseen_than_the_answer_has_room_for() -> None:
    subject = Rounds("on")
    subject.take()
    assert subject.has_foreseen
    decision = subject.take(num_remaining_tokens=3)
    assert (decision.num_draft_tokens, decision.num_decode_tokens) == (2, 1)


@pytest.mark.parametrize(
    "values",
    [
        {"num_draft_tokens": 0, "num_accepted_tokens": 0, "num_decoded_tokens": 1},
        {"num_draft_tokens": 0, "num_accepted_tokens": 0, "draft_problem": "late"},
        {"num_decoded_tokens": 2},
        {"replica_id": "target-b"},
        {"replica_id": ""},
    ],
)
def test_a_round_that_was_another_than_expected_is_learned_before_anything_is_decided(values) -> None:
    subject = Rounds("on")
    subject.take()
    told = {"num_requested_tokens": K, "num_draft_tokens": K, "num_accepted_tokens": 1, "step_s": VERIFY_S}
    subject.controller.next_k(subject._observed(**told))
    assert subject.controller._lessons._unlearned is not None
    subject.controller.catch_up()
    subject.controller.next_k(subject._observed(**(told | values)))
    assert subject.controller._lessons._unlearned is None


def test_a_failing_drafter_is_told_of_by_the_reason() -> None:
    subject = Rounds()
    subject.take()
    assert subject.has_foreseen
    subject.take(num_draft_tokens=0, num_accepted_tokens=0, draft_problem="a proposal missed its deadline")
    assert subject.controller.limitation.text == "a proposal missed its deadline"


def test_drafts_that_fail_are_given_up_as_soon() -> None:
    num_rounds = {}
    for foresees in (False, True):
        subject = Rounds(foresees=foresees)
        assert subject.has_foreseen == foresees
        num_rounds[foresees] = next(number for number in range(200) if subject.take(K).num_draft_tokens == 0)
        reasons = Counter(subject.take(K).reason for _ in range(100))
        assert reasons[Reason.FASTEST] == 0
        assert reasons[Reason.PROBE] > 0
    assert num_rounds[True] <= num_rounds[False] + K * 2, "a round for each length, and as many more"


def test_an_operators_floor_holds_for_what_is_foreseen() -> None:
    subject = Rounds(min_acceptance_rate=0.5)
    assert subject.has_foreseen
    decisions = (subject.take(K) for _ in range(100))
    assert next(decision for decision in decisions if not decision.num_draft_tokens).reason is Reason.ACCEPTANCE_FLOOR


def test_an_operators_lengths_hold_at_once_under_the_load_of_now() -> None:
    subject = Rounds(num_speculative_tokens_per_batch_size=((1, 1, K), (2, 2, 2), (3, 512, 0)))
    subject.take()
    assert subject.decision.num_draft_tokens == K
    replica = subject.measurements.replica(REPLICA)
    replica.join()
    assert subject.has_foreseen
    assert subject.take().num_draft_tokens <= 2
    replica.join()
    assert subject.take().reason is Reason.BATCH_SIZE


def test_what_was_foreseen_does_not_hold_when_the_gate_closes() -> None:
    subject = Rounds()
    subject.take()
    assert subject.has_foreseen
    gate = subject.measurements.replica(REPLICA).rounds("draft").gate
    gate.is_open = False
    gate.state_number += 1
    subject.controller.next_k(subject._observed(num_requested_tokens=K, num_draft_tokens=K, step_s=VERIFY_S))
    assert subject.controller._lessons._unlearned is None, "it was decided anew, with the round learned"


def test_the_rows_of_the_round_under_way_count_not_those_of_the_one_that_is_learned() -> None:
    subject = Rounds("on")
    replica = subject.measurements.replica(REPLICA)
    subject.take()
    assert replica._num_own_rows == K + 1
    subject.take(num_remaining_tokens=3)
    assert replica._num_own_rows == 3
    subject.take(num_remaining_tokens=2)
    assert replica._num_own_rows == 2


@pytest.mark.parametrize(
    "is_due",
    [lambda replica: replica.count_verifications(512), lambda replica: setattr(replica, "_plain", MedianWindow())],
)
def test_plain_decoding_is_measured_all_the_same(is_due: Callable) -> None:
    subject = Rounds()
    subject.take()
    is_due(subject.measurements.replica(REPLICA))
    assert Reason.MEASURING in {subject.take().reason for _ in range(2)}


def test_a_replica_that_was_lost_before_its_round_was_learned_has_no_record_again() -> None:
    subject = Rounds("on")
    subject.take()
    subject.controller.next_k(subject._observed(num_requested_tokens=K, num_draft_tokens=K, step_s=VERIFY_S))
    before = subject.acceptance
    subject.measurements.retain(())
    subject.controller.catch_up()
    assert subject.acceptance < before, "what it tells of the drafter holds anywhere"
    assert not subject.measurements.replicas


def test_a_request_that_ends_learns_its_round_once_and_leaves_nothing() -> None:
    subject = Rounds("on")
    subject.take()
    before = subject.acceptance
    subject.controller.next_k(subject._observed(num_requested_tokens=K, num_draft_tokens=K, step_s=VERIFY_S))
    subject.controller.close(2.0)
    after = subject.acceptance
    assert after < before
    subject.controller.catch_up()
    subject.controller.close(2.0)
    assert subject.acceptance == after
    assert not subject.has_foreseen
    replica = subject.measurements.replica(REPLICA)
    assert replica._num_own == replica._num_own_rows == replica._num_speculating == 0


def test_the_round_before_the_last_is_learned_at_the_end() -> None:
    subject = Rounds()
    subject.take()
    before = subject.acceptance
    subject.controller.next_k(subject._observed(num_requested_tokens=K, num_draft_tokens=K, step_s=VERIFY_S))
    last = subject._observed(num_requested_tokens=K, num_draft_tokens=K, step_s=VERIFY_S)
    subject.controller.end(dataclasses.replace(last, num_output_tokens=105))
    assert subject.acceptance < before
