from __future__ import annotations

import dataclasses
import itertools
import random

import pytest

from orchestrator.control.decision import Decision, Observation
from orchestrator.control.measurements import Measurements
from orchestrator.control.reasons import Reason
from orchestrator.controller import Controller
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from pilotfish.config import SpeculationConfig
from pilotfish.types import LoadReport, SamplingParams

REPLICA = "target-a"
SECONDS = itertools.count(1)


def controller(mode="auto", k=4, max_tokens=1000, measurements=None, **config) -> Controller:
    request = GenerationRequest(
        prompt_token_ids=(1,),
        sampling=SamplingParams(max_tokens=max_tokens),
        speculation=SpeculationOptions(mode=mode),
        num_speculative_tokens=k,
    )
    return Controller(request, measurements or Measurements(), SpeculationConfig(**config))


def observed(done=100, remaining=900, **values) -> Observation:
    values = {"now_s": next(SECONDS), **values}
    return Observation(num_output_tokens=done, num_remaining_tokens=remaining, replica_id=REPLICA, **values)


def measured(decode_s=0.01, verify_s=0.011, propose_s=0.0005, num_tokens=(2, 3, 4, 5)) -> Measurements:
    """What one sequence alone would measure: verify_s for rounds of all lengths, propose_s for each draft token."""
    measurements = Measurements()
    replica = measurements.replica(REPLICA)
    replica.costs.add_step(1, 1, decode_s)
    replica.add_decode(decode_s)
    for rows in num_tokens:
        replica.costs.add_step(1, rows, verify_s)
    measurements.replica(REPLICA).add_propose("draft", 4, 4 * propose_s, 4 * propose_s)
    return measurements


def round_of(num_drafts=4, num_accepted=0, propose_s=0.002, step_s=0.011, **values) -> Observation:
    return observed(
        num_requested_tokens=num_drafts,
        num_draft_tokens=num_drafts,
        num_accepted_tokens=num_accepted,
        propose_s=propose_s,
        propose_compute_s=propose_s,
        step_s=step_s,
        **values,
    )


def run_of(num_tokens=16, token_s=0.01, **values) -> Observation:
    return observed(num_decoded_tokens=num_tokens, step_s=token_s * num_tokens, token_s=token_s, **values)


def follow(
    subject: Controller, num_rounds: int, num_accepted=lambda k: 0, draft_s: float = 0.0005, **costs
) -> list[Decision]:
    """What is decided when every decision is carried out, and so many of K drafts are accepted, that take draft_s."""
    decisions = [subject.next_k(run_of())]
    while len(decisions) < num_rounds:
        decision = decisions[-1]
        k = decision.num_draft_tokens
        observation = round_of(k, num_accepted(k), draft_s * k, **costs) if k else run_of(decision.num_decode_tokens)
        decisions.append(subject.next_k(observation))
    return decisions


def until_probe(subject: Controller) -> Decision:
    """Drafts are rejected until it is off, and runs are decoded until a probe is due: that one."""
    decision = follow(subject, 100)[-1]
    while decision.reason is not Reason.PROBE:
        decision = subject.next_k(run_of())
    return decision


def test_off_is_one_run_over_everything_that_is_left() -> None:
    subject = controller("off")
    assert subject.next_k(observed(0, 300)) == Decision(0, 300, Reason.MODE_OFF)
    assert "off" in subject.limitation.text


def test_zero_draft_tokens_is_off() -> None:
    subject = controller("on", k=0)
    assert subject.next_k(observed()).num_draft_tokens == 0
    assert subject.limitation.text == "num_speculative_tokens is 0"


def test_on_drafts_in_every_round_after_the_first_token() -> None:
    subject = controller("on")
    assert subject.next_k(observed(0, 1000)) == Decision(0, 1, Reason.FIRST_TOKEN)
    for _ in range(50):
        assert subject.next_k(round_of()).num_draft_tokens == 4
    assert subject.limitation.text == ""


@pytest.mark.parametrize(("remaining", "expected"), [(1, 0), (2, 1), (4, 3), (5, 4), (100, 4)])
def test_no_more_is_drafted_than_can_be_used(remaining: int, expected: int) -> None:
    assert controller("on").next_k(observed(100, remaining)).num_draft_tokens == expected


def test_short_answers_are_not_worth_a_drafter_in_auto() -> None:
    subject = controller("auto", max_tokens=9, measurements=measured())
    assert not subject.will_draft_soon
    assert subject.next_k(observed(0, 9)).num_decode_tokens == 9
    assert subject.limitation.reason is Reason.SHORT_OUTPUT
    assert controller("auto", max_tokens=9, measurements=measured(), min_output_tokens=5).will_draft_soon


def test_without_a_drafter_it_decodes_in_runs_and_looks_again() -> None:
    subject = controller("on")
    absent = subject.next_k(observed(drafter_absence="there is no draft replica"))
    assert absent == Decision(0, 16, Reason.NO_DRAFTER, details="there is no draft replica")
    assert subject.limitation.text == "there is no draft replica"
    assert subject.next_k(observed()).num_draft_tokens == 4


def test_a_saturated_draft_pool_is_left_alone_in_auto_only() -> None:
    saturated = observed(is_drafter_saturated=True)
    assert controller("auto", measurements=measured()).next_k(saturated).reason is Reason.DRAFT_POOL_SATURATED
    assert controller("on", measurements=measured()).next_k(saturated).num_draft_tokens == 4


def test_auto_measures_plain_decoding_before_it_compares() -> None:
    subject = controller("auto")
    assert subject.next_k(observed()) == Decision(0, 4, Reason.MEASURING)
    assert subject.next_k(run_of(4)).num_draft_tokens > 0


def test_auto_drafts_far_when_guesses_hold_and_not_at_all_when_they_never_do() -> None:
    bad = controller("auto", measurements=measured())
    assert follow(controller("auto", measurements=measured()), 40, lambda k: k)[-1].num_draft_tokens == 4
    assert follow(bad, 40)[-1].num_draft_tokens == 0
    assert bad.limitation.reason is Reason.ACCEPTANCE
    assert "plain decoding is faster" in bad.limitation.text


def test_a_drafter_as_slow_as_decoding_is_not_used() -> None:
    subject = controller("auto", measurements=measured(propose_s=0.02))
    assert not subject.will_draft_soon
    decision = subject.next_k(observed())
    assert (decision.num_draft_tokens, decision.reason) == (0, Reason.ROUND_TIME)


def test_waiting_in_vain_counts_as_the_price_of_a_proposal() -> None:
    subject = controller("auto", measurements=measured())
    assert subject.next_k(observed()).num_draft_tokens > 0
    late = observed(num_requested_tokens=4, num_decoded_tokens=1, propose_s=0.2, step_s=0.01, draft_problem="late")
    assert 0 in [subject.next_k(late).num_draft_tokens for _ in range(20)]


def plain_gaps(decisions: list[Decision]) -> list[int]:
    """Plain tokens before each draft."""
    gaps, gap = [], 0
    for decision in decisions:
        if decision.num_draft_tokens:
            gaps.append(gap)
            gap = 0
        else:
            gap += decision.num_decode_tokens
    return [gap for gap in gaps if gap]


def test_at_zero_it_probes_ever_more_rarely_but_never_gives_up() -> None:
    gaps = plain_gaps(follow(controller("auto", measurements=measured(), max_tokens=10**6), 400))
    assert gaps == sorted(gaps)
    assert gaps[0] <= 64
    assert gaps[-1] in range(512, 544)


def test_probes_bring_speculation_back_when_guesses_hold_again() -> None:
    subject = controller("auto", measurements=measured(), max_tokens=10**6)
    assert follow(subject, 100)[-1].num_draft_tokens == 0
    decisions = follow(subject, 100, lambda k: k)
    assert (decisions[-1].reason, decisions[-1].num_draft_tokens) == (Reason.FASTEST, 4)
    assert Reason.PROBE in {decision.reason for decision in decisions}


def test_the_last_tokens_are_drafted_as_those_before_them() -> None:
    """Where two tokens are left a round of so few would not pay, but neither does a step apart from the others'."""
    subject = controller("auto", k=8, measurements=measured(verify_s=0.04, num_tokens=(2, 3, 5, 9)), max_tokens=10**6)
    assert follow(subject, 60, lambda k: k, step_s=0.04)[-1].reason is Reason.FASTEST
    last = subject.next_k(round_of(8, 8, step_s=0.04, remaining=3))
    assert (last.reason, last.num_draft_tokens) == (Reason.FASTEST, 2)


def test_drafts_that_pay_for_one_request_are_no_reason_for_others_to_try_them_sooner() -> None:
    measurements = measured()
    follow(controller(measurements=measurements, max_tokens=10**6), 100)
    interval_tokens = measurements.proposer("draft").probe_interval_tokens
    subject = controller(measurements=measurements, max_tokens=10**6)
    unlucky = controller("on", measurements=measurements, max_tokens=10**6)
    unlucky.next_k(observed(1))
    decision = subject.next_k(run_of())
    for _ in range(80):
        for _ in range(8):
            unlucky.next_k(round_of(4, 0))
        k = decision.num_draft_tokens
        decision = subject.next_k(round_of(k, k) if k else run_of(decision.num_decode_tokens))
    gate = measurements.replica(REPLICA).rounds("draft").gate
    assert (decision.reason, gate.is_open) == (Reason.FASTEST, False)
    assert measurements.proposer("draft").probe_interval_tokens == interval_tokens > 32


def test_drafts_that_pay_for_one_alone_are_a_reason_to_try_them_soon_again() -> None:
    """What all requests know keeps the gate closed: others' drafts were bad before."""
    measurements = measured()
    first, unlucky = (controller(mode, measurements=measurements, max_tokens=10**6) for mode in ("auto", "on"))
    follow(first, 400)
    for _ in range(2000):
        unlucky.next_k(round_of(4, 0))
    for other in (first, unlucky):
        other.close(next(SECONDS))
    subject = controller(measurements=measurements, max_tokens=10**6)
    gate, proposer = measurements.replica(REPLICA).rounds("draft").gate, measurements.proposer("draft")
    decisions = [subject.next_k(run_of())]
    assert proposer.probe_interval_tokens == 512
    while decisions[-1].reason is not Reason.FASTEST and len(decisions) < 500:
        k = decisions[-1].num_draft_tokens
        decisions.append(subject.next_k(round_of(k, k) if k else run_of(decisions[-1].num_decode_tokens)))
    assert gate.is_open is False
    assert proposer.probe_interval_tokens == 32


def test_others_good_drafts_are_no_reason_to_try_ones_own_sooner() -> None:
    measurements = measured()
    subject = controller(measurements=measurements, max_tokens=10**6)
    decisions = [subject.next_k(run_of())]
    for _ in range(600):
        measurements.proposer("draft").add_success()
        k = decisions[-1].num_draft_tokens
        decisions.append(subject.next_k(round_of(k, 0) if k else run_of(decisions[-1].num_decode_tokens)))
    assert plain_gaps(decisions)[-1] in range(512, 544)
    decisions = follow(subject, 200, lambda k: k)
    assert decisions[-1].reason is Reason.FASTEST
    gaps = plain_gaps(follow(subject, 100))
    assert gaps[0] <= 64, "its own held meanwhile"


def test_a_drafter_that_fails_makes_no_request_wait_longer_than_others() -> None:
    measurements = measured()
    first, subject = (controller(measurements=measurements, max_tokens=10**6) for _ in range(2))
    follow(first, 100)
    first.close(next(SECONDS))
    failed = observed(num_requested_tokens=2, num_decoded_tokens=1, propose_s=0.02, step_s=0.01, draft_problem="late")
    decision = subject.next_k(run_of())
    for _ in range(600):
        decision = subject.next_k(failed if decision.reason is Reason.PROBE else run_of())
    assert measurements.proposer("draft").probe_interval_tokens == 512
    measurements.proposer("draft").add_success()
    assert Reason.PROBE in {subject.next_k(run_of()).reason for _ in range(4)}


def test_another_try_is_made_at_once_when_it_is_due() -> None:
    measurements = measured(verify_s=0.017)
    record = measurements.replica(REPLICA).rounds("draft")
    level, subject = record.level(1), controller(measurements=measurements, max_tokens=10**6)
    for _ in range(64):
        record.gate.update(0.8, 1, 1, is_measured=True)
        record.gate.count_plain_tokens(64, record.gate.state_number)
    assert subject.next_k(run_of()).reason is Reason.FASTEST, "its own drafts seem to pay"
    assert record.gate.is_open is False
    level.count_plain_tokens(512, 1)
    subject.next_k(round_of(4, 4))
    assert record.gate.is_open
    assert not level.is_retry_due


def test_the_drafter_reads_no_prompt_where_drafts_were_found_not_to_pay_for_all() -> None:
    measurements = measured()
    gate = measurements.replica(REPLICA).rounds("draft").gate
    gate.update(0.9, 1, 1, is_measured=True)
    asking = measurements.proposer("draft").asking(4)
    assert measurements.replica(REPLICA).prices("draft", 4, lambda depth: depth).best(asking)[1] > 1.15
    first = controller(measurements=measurements)
    first.next_k(observed(0, 1000))
    assert first.will_draft_soon, "those whose own drafts are so much better decide for themselves"
    slower = measured(verify_s=0.019)
    prices = slower.replica(REPLICA).prices("draft", 4, lambda depth: depth)
    assert 1 < prices.best(asking)[1] < 1.15
    second = controller(measurements=slower)
    assert second.will_draft_soon
    slower.replica(REPLICA).rounds("draft").gate.update(0.9, 1, 1, is_measured=True)
    assert not second.will_draft_soon
    assert second.next_k(observed(0, 1000)).num_decode_tokens == 16
    better = measured(verify_s=0.017)
    third, rounds = controller(measurements=better), better.replica(REPLICA).rounds("draft")
    rounds.gate.update(0.9, 1, 1, is_measured=True)
    assert third.will_draft_soon
    for _ in range(4000):
        rounds.level(1).achieved.add(7, 10.0, 1)
    assert not third.will_draft_soon, "they never kept their promise"
    slower.replica(REPLICA).rounds("draft").gate.update(0.9, 8, 8, is_measured=True)
    assert second.will_draft_soon, "it was found under another load"


def test_the_same_prices_judge_once_however_far_requests_draft() -> None:
    measurements = measured()
    requests = [controller(k=k, measurements=measurements, max_tokens=10**6) for k in (2, 4)]
    gate = measurements.replica(REPLICA).rounds("draft").gate
    num_judged = itertools.count()
    gate.update = lambda *_values, **_more: next(num_judged) >= 0  # type: ignore[method-assign]
    gate.is_open = True
    for _ in range(64):
        for subject in requests:
            subject.next_k(run_of(1))
    assert 0 < next(num_judged) <= 2 * 64 // 3, "prices are found for one decision in eight, at first for more"


def test_answers_shorter_than_the_interval_probe_for_each_other() -> None:
    measurements = measured()
    follow(controller("auto", measurements=measurements, max_tokens=10**6), 400)
    num_probes = 0
    for _ in range(64):
        subject = controller("auto", measurements=measurements, max_tokens=128)
        decisions = follow(subject, 8)
        num_probes += sum(decision.reason is Reason.PROBE for decision in decisions)
        subject.close(next(SECONDS))
    assert 64 * 8 * 16 // 512 // 3 <= num_probes <= 64 * 8 * 16 // 512


def test_a_probe_that_holds_is_followed_by_a_longer_one_at_once() -> None:
    subject = controller("auto", k=8, measurements=measured(), max_tokens=10**6)
    assert until_probe(subject).num_draft_tokens == 2
    second = subject.next_k(round_of(2, 2))
    assert (second.reason, second.num_draft_tokens) == (Reason.PROBE, 4)


def test_a_probe_ends_where_even_drafts_that_are_all_accepted_take_too_long() -> None:
    """5 tokens in 91 ms, with 10 ms a token beside."""
    subject = controller("auto", measurements=measured(propose_s=0.02), max_tokens=10**6)
    decisions = follow(subject, 300, lambda k: k, draft_s=0.02)
    assert plain_gaps(decisions)[-1] >= 256
    probes = [decision for decision in decisions if decision.reason is Reason.PROBE]
    assert {probe.num_draft_tokens for probe in probes} == {2}
    assert sum(decision.num_draft_tokens > 0 for decision in decisions) < 0.2 * len(decisions)


@pytest.mark.parametrize(("num_committed_tokens", "is_kept"), [(2, True), (1, False)])
def test_speculation_that_does_not_keep_its_promise_is_off(num_committed_tokens: int, is_kept: bool) -> None:
    """Two tokens in 15 ms for one in 10 are promised; one is no reason to go on."""
    subject = controller("auto", k=1, measurements=measured(propose_s=0.004), max_tokens=10**6)
    decision, rounds_s, plain_s = subject.next_k(run_of()), 0.0, 0.0
    for _ in range(3000):
        if decision.num_draft_tokens:
            rounds_s += 0.015
            load = LoadReport(num_sequences_decoding=1, num_step_tokens=2, step_time_ns=11_000_000)
            values = {"target_load": load, "num_committed_tokens": num_committed_tokens}
            decision = subject.next_k(round_of(1, 1, 0.004, **values))
        else:
            plain_s += 0.01 * decision.num_decode_tokens
            # Without it the only plain step is forgotten after 512 others, and a verification's time passes for its.
            load = LoadReport(num_sequences_decoding=1, num_step_tokens=1, step_time_ns=10_000_000)
            decision = subject.next_k(run_of(decision.num_decode_tokens, target_load=load))
    drafted_share = rounds_s / (rounds_s + plain_s)
    assert drafted_share > 0.95 if is_kept else drafted_share < 0.3, drafted_share


def keep_going(subject: Controller, num_rounds: int, observe=lambda decision: None) -> float:
    """Rounds of 18 ms in which a draft is accepted with probability 0.6 if all before it were, or what `observe` says;
    the share of time in which it was decoded plainly."""
    decision, rounds_s, plain_s = subject.next_k(run_of()), 0.0, 0.0
    luck = random.Random(2)
    for _ in range(num_rounds):
        k = decision.num_draft_tokens
        if k and (observation := observe(decision)) is None:
            load = LoadReport(num_sequences_decoding=1, num_step_tokens=k + 1, step_time_ns=11_000_000)
            num_accepted = next((n for n in range(k) if luck.random() >= 0.6), k)
            values = {"target_load": load, "num_committed_tokens": num_accepted + 1}
            observation = round_of(k, num_accepted, 0.0005 * k, 0.018 - 0.0005 * k, **values)
        if k:
            rounds_s += 0.018
        else:
            plain_s += 0.01 * decision.num_decode_tokens
            observation = run_of(decision.num_decode_tokens)
        decision = subject.next_k(observation)
    return plain_s / (rounds_s + plain_s)


@pytest.mark.parametrize(
    ("dear_by", "num_dear_rounds", "stays"), [(1.3, 36, True), (1.3, 150, False), (2.0, 36, False)]
)
def test_no_moment_that_is_dear_for_all_turns_single_requests_off(
    dear_by: float, num_dear_rounds: int, stays: bool
) -> None:
    """Requests whose drafts are as good as everybody's go off together, when a loss lasts or is clear."""
    measurements, num_sequences = measured(), 4
    replica = measurements.replica(REPLICA)
    for rows in (1, 2, 3, 4, 5):
        replica.costs.add_step(num_sequences, num_sequences * rows, 0.01 if rows == 1 else 0.011)
    subjects = [controller(measurements=measurements, max_tokens=10**6) for _ in range(num_sequences)]
    decisions = [subject.next_k(run_of()) for subject in subjects]
    num_off = 0
    for round_number in range(300 + num_dear_rounds):
        round_s = 0.022 * (1 if round_number < 300 else dear_by)
        num_rows = sum(decision.num_draft_tokens + 1 for decision in decisions)
        load = LoadReport(num_sequences_decoding=num_sequences, num_step_tokens=num_rows, step_time_ns=11_000_000)
        for i, subject in enumerate(subjects):
            k = decisions[i].num_draft_tokens
            num_accepted = min(k, (round_number + i) % 4)
            values = {"target_load": load, "num_committed_tokens": num_accepted + 1}
            draft_s = 0.0005 * k
            observation = round_of(k, num_accepted, draft_s, round_s - draft_s, **values) if k else run_of()
            decisions[i] = subject.next_k(observation)
            num_off += decisions[i].num_draft_tokens == 0
    assert (num_off == 0) is stays


def test_a_drafter_that_missed_many_deadlines_comes_back() -> None:
    """What a failed proposal took is the price of the next one for a while; of a lone sequence, too, and where drafts
    that are accepted half the time would not pay at that price."""
    subject = controller("auto", measurements=measured(), max_tokens=10**6)
    assert keep_going(subject, 600) < 0.05
    failures = itertools.count(1)

    def fail(decision: Decision) -> Observation | None:
        if next(failures) > 12:
            return None
        subject.note_draft(0)
        values = {"num_decoded_tokens": 1, "num_committed_tokens": 1, "propose_s": 0.04, "step_s": 0.011}
        problem = "a proposal missed its deadline"
        return observed(num_requested_tokens=decision.num_draft_tokens, draft_problem=problem, **values)

    keep_going(subject, 300, fail)
    assert keep_going(subject, 300) < 0.05


def test_requests_that_always_draft_do_not_follow_a_promise() -> None:
    """They may be under another load than the one it was made for."""
    measurements = measured()
    first = controller("auto", measurements=measurements, max_tokens=10**6)
    assert keep_going(first, 300) < 0.05
    first.close(next(SECONDS))
    level = measurements.replica(REPLICA).rounds("draft").level(1)
    before = level.achieved.ratio
    subject = controller("on", measurements=measurements, max_tokens=10**6)
    subject.next_k(run_of())
    for _ in range(500):
        subject.next_k(round_of(4, 4, num_committed_tokens=1, now_s=next(SECONDS)))
    assert level.achieved.ratio == before


def test_a_probe_is_verified_whatever_it_promises() -> None:
    assert until_probe(controller("auto", measurements=measured(), max_tokens=10**6)).min_accepted_tokens == 0


def test_a_drafter_that_has_become_faster_is_tried_again() -> None:
    subject = controller("auto", measurements=measured(propose_s=0.02), max_tokens=10**6)
    assert follow(subject, 20, lambda k: k, draft_s=0.02)[-1].num_draft_tokens == 0
    assert follow(subject, 300, lambda k: k)[-1].reason is Reason.FASTEST


def test_a_probe_that_is_accepted_for_ever_but_never_enough_ends() -> None:
    subject = controller("auto", measurements=measured(), min_acceptance_rate=1, max_tokens=10**6)
    decisions = follow(subject, 300, lambda k: k)
    assert max(decision.num_draft_tokens for decision in decisions) == 4
    assert plain_gaps(decisions)[-1] >= 64


def test_answers_of_one_run_probe_for_each_other() -> None:
    measurements = measured()
    first = controller("auto", measurements=measurements, max_tokens=10**6)
    follow(first, 100)
    first.close(next(SECONDS))
    num_probes = 0
    for _ in range(200):
        subject = controller("auto", measurements=measurements, max_tokens=12)
        decision = subject.next_k(observed(0, 12))
        if decision.num_decode_tokens < 12:
            probe = subject.next_k(observed(1, 11, num_decoded_tokens=1))
            assert (probe.reason, probe.num_draft_tokens) == (Reason.PROBE, 2)
            num_probes += 1
            subject.next_k(round_of(2))
            subject.close(next(SECONDS))
        else:
            subject.close(next(SECONDS), 12)
    assert 4 <= num_probes <= 200 * 12 // 512 + 1


def test_no_probe_is_made_for_one_run_answers_where_the_load_is_too_high() -> None:
    _, measurements = overloaded(64)
    measurements.replica(REPLICA).rounds("draft").probing.count_plain_tokens(10**6)
    for _ in range(200):
        subject = controller(measurements=measurements, max_tokens=12)
        assert subject.next_k(observed(0, 12)).num_decode_tokens == 12
        subject.close(next(SECONDS), 12)


def test_what_a_probe_waits_for_is_not_what_drafts_take() -> None:
    measurements = measured()
    subject = controller("auto", k=8, measurements=measurements, max_tokens=10**6)
    decisions = follow(subject, 100)
    propose = measurements.replica(REPLICA).rounds("draft").level(1).propose
    before_s = propose.seconds(4)
    while decisions[-1].reason is not Reason.PROBE:
        decisions.append(subject.next_k(run_of()))
    assert subject.next_k(round_of(2, 2, propose_s=0.5)).reason is Reason.PROBE
    subject.next_k(round_of(4, 0, propose_s=0.5))
    assert propose.seconds(4) == pytest.approx(before_s)


def test_a_probe_is_one_question_where_the_drafter_has_no_answer() -> None:
    measurements = measured()
    subject = controller("auto", measurements=measurements, max_tokens=10**6)
    until_probe(subject)
    measurements.proposer("draft").add_success()
    for expected in (64, 128, 128):
        assert subject.next_k(vain_ask(1, 0.001)).num_draft_tokens == 0
        interval_tokens = measurements.proposer("draft").probe_interval_tokens
        assert interval_tokens == expected, "less than for a draft that fails: up to 512"
        while subject.next_k(run_of()).reason is not Reason.PROBE:
            pass


def vain_ask(num_tokens: int, propose_s: float, token_s: float = 0.01) -> Observation:
    """The drafter took propose_s to say nothing, and so many tokens were decoded plainly then."""
    return run_of(num_tokens, token_s, num_requested_tokens=4, propose_s=propose_s)


def ask_mostly_in_vain(subject: Controller, num_rounds: int, propose_s: float) -> list[Decision]:
    """Of four questions one is answered, and all of it accepted."""
    decisions = [subject.next_k(run_of())]
    for number in range(num_rounds):
        decision = decisions[-1]
        if not decision.num_draft_tokens:
            observation = run_of(decision.num_decode_tokens)
        elif number % 4:
            observation = vain_ask(decision.num_decode_tokens, propose_s)
        else:
            observation = round_of(decision.num_draft_tokens, decision.num_draft_tokens, propose_s)
        decisions.append(subject.next_k(observation))
    return decisions


def test_asking_in_vain_is_worth_while_only_if_it_costs_little() -> None:
    cheap, dear = (controller(measurements=measured(), max_tokens=10**6) for _ in range(2))
    decisions = ask_mostly_in_vain(cheap, 200, propose_s=0.001)
    assert all(decision.num_draft_tokens for decision in decisions[1:])
    reasons = {decision.reason for decision in ask_mostly_in_vain(dear, 200, propose_s=0.02)[-50:]}
    assert Reason.ACCEPTANCE in reasons
    assert reasons <= {Reason.ACCEPTANCE, Reason.PROBE}
    assert "plain decoding is faster" in dear.limitation.text


def test_a_short_step_for_want_of_drafts_does_not_make_rounds_of_all_cheap() -> None:
    measurements = measured()
    replica = measurements.replica(REPLICA)
    for num_rows, step_s in ((4, 0.01), (8, 0.02), (20, 0.05)):
        replica.costs.add_step(4, num_rows, step_s)
    subject, *others = (controller("on", measurements=measurements) for _ in range(4))
    for each in (subject, *others):
        each.next_k(observed())
    for other in others:
        other.note_draft(0)
    for _ in range(200):
        subject.note_draft(4)
        load = LoadReport(num_sequences_decoding=4, num_step_tokens=8, step_time_ns=20_000_000)
        subject.next_k(round_of(step_s=0.02, target_load=load))
    assert replica.prices("draft", 4, lambda depth: depth).rounds_s[4] == pytest.approx(0.052, rel=0.05)


def test_a_drafter_that_waits_for_what_it_drafts_from_was_not_asked() -> None:
    """An EAGLE-3 head's first question of a request."""
    measurements = measured()
    subject = controller("auto", measurements=measurements, max_tokens=10**6)
    until_probe(subject)
    deferred = observed(num_requested_tokens=2, num_decoded_tokens=1, step_s=0.01, is_draft_deferred=True)
    assert subject.next_k(deferred).reason is Reason.PROBE
    assert measurements.proposer("draft").answers.value == 1
    decisions = [subject.next_k(round_of(2, 2, propose_s=0.001))]
    for _ in range(200):
        k = decisions[-1].num_draft_tokens
        decisions.append(subject.next_k(round_of(k, k, 0.0005 * k) if k else run_of()))
    assert decisions[-1].reason is Reason.FASTEST


def test_what_prefills_took_is_not_lost_by_asking_in_vain() -> None:
    lost_s = []
    for prefill_s in (0.0, 0.04):
        measurements = measured()
        subject = controller("on", measurements=measurements)
        load = LoadReport(num_sequences_decoding=1, num_step_tokens=1, step_time_ns=10_000_000)
        subject.next_k(run_of(now_s=0.0, target_load=load))
        for number in range(1, 64):
            now_s = number * (0.015 + prefill_s)
            told = vain_ask(1, 0.005, 0.01 + prefill_s)
            subject.next_k(dataclasses.replace(told, now_s=now_s, round_prefill_s=prefill_s, num_committed_tokens=1))
        prices = measurements.replica(REPLICA).prices("draft", 4, lambda depth: depth, 0.5)
        lost_s.append(prices.vain_s)
    assert lost_s == pytest.approx([0.005, 0.005])


def test_what_a_drafter_fails_to_answer_is_no_vain_question() -> None:
    measurements = measured()
    subject = controller("on", measurements=measurements)
    for _ in range(20):
        subject.next_k(observed(num_requested_tokens=4, num_decoded_tokens=2, step_s=0.02, draft_problem="late"))
    assert measurements.proposer("draft").asking(1).answered_share == 1
    subject.next_k(vain_ask(2, 0.001))
    assert measurements.proposer("draft").asking(1).answered_share < 1


def test_what_one_request_learns_the_next_begins_with() -> None:
    measurements = measured()
    first = controller("auto", measurements=measurements)
    follow(first, 60)
    first.close(next(SECONDS))
    assert not controller("auto", measurements=measurements).will_draft_soon


def test_the_prefill_is_no_decode_step() -> None:
    measurements = Measurements()
    controller("auto", measurements=measurements).next_k(run_of(8, 5.0, done=8))
    assert measurements.decode_s is None


def test_a_drafter_without_ideas_is_asked_ever_more_rarely_until_a_draft_holds() -> None:
    subject = controller("on", decode_run_tokens=8)
    empty = observed(num_requested_tokens=4, num_decoded_tokens=1)
    assert [subject.next_k(empty).num_decode_tokens for _ in range(5)] == [2, 4, 8, 8, 8]
    assert subject.next_k(round_of()).num_decode_tokens == 8
    assert subject.next_k(round_of(num_accepted=1)).num_decode_tokens == 1


def test_short_runs_do_not_pass_for_plain_decoding() -> None:
    measurements = measured(decode_s=0.01)
    controller("on", measurements=measurements).next_k(observed(num_decoded_tokens=2, step_s=0.2, token_s=0.1))
    assert measurements.decode_s == pytest.approx(0.01)


def told_rounds_s(prefill_s: float, **values: float) -> float:
    """What a round of four drafts is said to take after 40 that took 13 ms and prefills."""
    measurements, now_s = Measurements(), 0.0
    subject = controller("on", measurements=measurements)
    subject.next_k(run_of(now_s=now_s))
    for _ in range(40):
        load = LoadReport(num_sequences_decoding=1, num_step_tokens=5, step_time_ns=11_000_000)
        now_s += 0.013 + prefill_s + values.get("pause_s", 0.0)
        subject.next_k(
            round_of(
                now_s=now_s, step_s=0.011 + prefill_s, round_prefill_s=values.get("told_s", prefill_s), target_load=load
            )
        )
    return measurements.replica(REPLICA).prices("draft", 4, lambda depth: depth).rounds_s[4]


def test_prefills_are_no_part_of_a_round() -> None:
    assert told_rounds_s(0.0) == pytest.approx(0.013)
    assert told_rounds_s(0.04) == pytest.approx(0.013)
    assert told_rounds_s(0.04, told_s=0.0) == pytest.approx(0.053), "nobody told that there was one"


def test_what_prefills_took_while_a_client_did_not_read_is_no_part_of_a_round() -> None:
    assert told_rounds_s(0.0, told_s=0.5, pause_s=0.987) == pytest.approx(0.013 * 0.5)


def test_prefills_are_no_part_of_plain_decoding() -> None:
    measurements = Measurements()
    subject = controller("auto", measurements=measurements)
    for _ in range(20):
        load = LoadReport(num_sequences_decoding=1, num_step_tokens=1, step_time_ns=10_000_000)
        subject.next_k(run_of(token_s=0.03, prefill_s=0.02, target_load=load))
        subject.next_k(run_of(token_s=0.01, prefill_s=0.02))  # the first of several was longer than what they took
    assert measurements.decode_s == pytest.approx(0.01)


def test_where_speculation_always_wins_plain_decoding_is_measured_now_and_then() -> None:
    decisions = follow(controller("auto", measurements=measured(), max_tokens=10**6), 700, lambda k: k)
    measuring = [decision for decision in decisions if decision.reason is Reason.MEASURING]
    assert len(measuring) == 1
    assert measuring[0].num_decode_tokens == 4
    assert sum(decision.num_draft_tokens == 0 for decision in decisions) == 1


def test_a_draft_must_promise_what_its_round_trip_costs() -> None:
    measurements = measured(decode_s=0.010, verify_s=0.014, propose_s=0.0)
    assert controller("auto", measurements=measurements).next_k(observed()).min_accepted_tokens == pytest.approx(0.4)
    assert controller("on", measurements=measurements).next_k(observed()).min_accepted_tokens == 0


def test_trees_cost_by_their_tokens_and_are_accepted_by_depth() -> None:
    """Verifying 8 tokens takes four times as long as 4: a depth of 2 in 8 tokens does not pay what it does in 2."""

    def chosen(num_draft_tokens: int) -> int:
        measurements = measured(decode_s=0.01, verify_s=0.011)
        measurements.replica(REPLICA).costs.add_step(1, 9, 0.04)
        subject = controller(k=2, measurements=measurements)
        for _ in range(30):
            step_s = 0.011 if num_draft_tokens == 2 else 0.04
            tree = {"draft_depth": 2, "num_accepted": 2, "step_s": step_s}
            decision = subject.next_k(round_of(num_draft_tokens, **tree))
        return decision.num_draft_tokens

    assert chosen(2) == 2
    assert chosen(8) < 2


def crowd(measurements: Measurements, num_sequences: int) -> list[Controller]:
    """Others that decode on the replica."""
    others = [controller("off", measurements=measurements) for _ in range(num_sequences)]
    for other in others:
        other.next_k(observed())
    return others


def test_the_decode_load_decides_and_leaves_with_the_requests() -> None:
    """64 rows take twice as long as one: alone K drafts are nearly free, among others each costs everybody."""
    measurements = measured()
    measurements.replica(REPLICA).costs.add_step(32, 32, 0.010)
    measurements.replica(REPLICA).costs.add_step(32, 64, 0.020)
    subject = controller(measurements=measurements)
    others = crowd(measurements, 31)
    assert subject.next_k(run_of()).reason is Reason.LOAD
    for other in others:
        other.close(next(SECONDS))
    assert subject.next_k(run_of()).reason is Reason.FASTEST
    assert (measurements.counts.num_switches_off, measurements.counts.num_switches_on) == (0, 1)


def overloaded(num_sequences: int, step_s: float = 0.004) -> tuple[Controller, Measurements]:
    """One of num_sequences on a replica where each row beside theirs costs as much as one of theirs."""
    measurements = measured()
    replica = measurements.replica(REPLICA)
    replica.costs.add_step(num_sequences, num_sequences, step_s)
    replica.costs.add_step(num_sequences, 2 * num_sequences, 2 * step_s)
    crowd(measurements, num_sequences - 1)
    return controller(measurements=measurements), measurements


@pytest.mark.parametrize(
    ("num_sequences", "step_s", "expected"),
    [
        (63, 0.004, 16),
        (64, 0.004, 32),
        (128, 0.004, 64),
        (256, 0.004, 128),
        (512, 0.004, 128),
        (256, 0.025, 40),
        (256, 0.1, 16),
    ],
)
def test_plain_runs_grow_with_the_load_but_not_beyond_a_second(
    num_sequences: int, step_s: float, expected: int
) -> None:
    subject, _ = overloaded(num_sequences, step_s)
    assert subject.next_k(observed(0, 900)).num_decode_tokens <= 16  # soon it is one of those who decode
    load = LoadReport(
        num_sequences_decoding=num_sequences, num_step_tokens=num_sequences, step_time_ns=round(1e9 * step_s)
    )
    # Where the services cannot keep up, tokens take longer than steps: longer runs are what spares them time.
    assert subject.next_k(run_of(token_s=10 * step_s, target_load=load)) == Decision(0, expected, Reason.LOAD)
    assert subject.next_k(run_of(remaining=9)).num_decode_tokens == 9
    assert subject.next_k(observed(0, 900, drafter_absence="none")).num_decode_tokens == 16
    assert subject.next_k(run_of(drafter_absence="none")) == Decision(0, expected, Reason.NO_DRAFTER, details="none")
    assert subject.next_k(run_of(is_drafter_saturated=True)).num_decode_tokens == 16  # for a moment


def test_a_run_counts_for_what_waits_for_it_only_when_it_is_decoded() -> None:
    subject, measurements = overloaded(256)
    rounds = measurements.replica(REPLICA).rounds("draft")
    counted: list[int] = []
    rounds.gate.count_plain_tokens = lambda num_tokens, state_number: counted.append(num_tokens)
    assert subject.next_k(run_of()).num_decode_tokens == 128
    assert counted == []
    subject.next_k(run_of(112))
    assert counted == [112]
    subject.close(next(SECONDS), 30)
    subject.close(next(SECONDS), 30)
    assert counted == [112, 30], "of the last run, which no decision followed"


def test_one_slow_step_keeps_nobody_from_steps_of_its_size_for_ever() -> None:
    """It would be the last of its size for as long as many decode."""
    measurements = measured()
    replica = measurements.replica(REPLICA)
    replica.costs.add_step(8, 40, 0.2)
    crowd(measurements, 7)
    assert controller(measurements=measurements).next_k(run_of()).reason is Reason.LOAD
    for _ in range(512):
        replica.costs.add_step(8, 8, 0.010)
    assert controller(measurements=measurements).next_k(run_of()).reason is Reason.FASTEST


def test_drafts_are_probed_where_they_were_bad_and_rounds_were_slow_as_well() -> None:
    measurements = measured()
    subject = controller(measurements=measurements, max_tokens=10**6)
    crowd(measurements, 3)
    follow(subject, 60)
    rounds = measurements.replica(REPLICA).rounds("draft")
    for _ in range(40):
        rounds.level(4).add_share(1.0)
        rounds.level(4).add_round(9.0, 4, 4)
        rounds.level(4).add_round(9.0, 1, 4)
    decisions = follow(subject, 100)
    assert Reason.PROBE in {decision.reason for decision in decisions}


def test_the_gate_judges_drafts_of_the_lengths_that_an_operator_allows() -> None:
    """Of one token they do not pay, of four they would."""

    def chosen(**rules: object) -> int:
        measurements = measured(verify_s=0.0205)
        for _ in range(100):
            measurements.proposer("draft").acceptance.add(4, 3)
        return controller(measurements=measurements, **rules).next_k(run_of()).num_draft_tokens

    assert chosen() == 4
    assert chosen(num_speculative_tokens_per_batch_size=((1, 100, 1),)) == 0


def test_a_replica_that_was_lost_and_is_there_again_has_another_record() -> None:
    measurements = measured()
    others = crowd(measurements, 3)
    measurements.retain(())
    others[0].next_k(dataclasses.replace(observed(), replica_id=""))
    assert not measurements.replicas, "what came before it was lost makes no record of it"
    for other in others[:2]:
        other.next_k(observed())
    assert measurements.replica(REPLICA).num_decoding == 2
    for other in others:
        other.close(next(SECONDS))
    assert measurements.replica(REPLICA).num_decoding == 1


def test_operators_may_set_k_by_batch_size() -> None:
    measurements = measured()
    rules = {"num_speculative_tokens_per_batch_size": ((1, 1, 2), (2, 4, 1), (5, 100, 0))}
    subject = controller(measurements=measurements, **rules)
    drafted = []
    for _ in range(6):
        drafted.append(subject.next_k(run_of()))
        crowd(measurements, 1)
    assert [decision.num_draft_tokens for decision in drafted[:2]] == [2, 1]
    assert [decision.num_draft_tokens for decision in drafted[4:]] == [0, 0]
    assert drafted[-1].reason is Reason.BATCH_SIZE


def test_a_batch_threshold_has_hysteresis() -> None:
    measurements = measured()
    subject = controller(measurements=measurements, disable_by_batch_size=12)
    others = crowd(measurements, 11)

    def reasons(num_sequences: int) -> Reason:
        while len(others) + 1 > num_sequences:
            others.pop().close(next(SECONDS))
        return subject.next_k(run_of()).reason

    assert [reasons(n) is Reason.BATCH_SIZE for n in (12, 11, 5, 4, 3)] == [True, True, True, True, False]


def test_below_the_acceptance_floor_only_probes_are_drafted() -> None:
    subject = controller(measurements=measured(), min_acceptance_rate=0.7, max_tokens=10**6)
    decisions = follow(subject, 60, lambda k: min(k, 1) if k else 0)
    assert decisions[-1].num_draft_tokens > 0
    subject = controller(measurements=measured(), min_acceptance_rate=0.7, max_tokens=10**6)
    reasons = {decision.reason for decision in follow(subject, 60)[20:]}
    assert reasons == {Reason.ACCEPTANCE_FLOOR, Reason.PROBE}


def test_every_decision_is_counted() -> None:
    measurements = measured()
    subject = controller(measurements=measurements)
    follow(subject, 10, lambda k: k)
    assert measurements.counts.decisions == {Reason.FASTEST: 10}
    assert subject.draft_token_counts == measurements.counts.draft_tokens
    assert subject.draft_token_counts.total() == 10


@pytest.mark.parametrize(("between_s", "drafts"), [(0.0, True), (0.009, False), (0.5, True)])
def test_what_is_done_between_rounds_counts_but_for_a_client_that_does_not_read(between_s: float, drafts: bool) -> None:
    """1.8 tokens in 14 ms are faster than 10 ms a token; in 23 ms they are not."""
    measurements, now_s = measured(verify_s=0.012), 0.0
    subject = controller(k=1, measurements=measurements, max_tokens=10**6)
    decisions = [subject.next_k(run_of(now_s=now_s))]
    for round_number in range(48):
        now_s += between_s + 0.014 if decisions[-1].num_draft_tokens else 0.16
        if decisions[-1].num_draft_tokens:
            accepted = int(round_number % 5 > 0)
            load = LoadReport(num_sequences_decoding=1, num_step_tokens=2, step_time_ns=12_000_000)
            told = {"target_load": load, "now_s": now_s}
            decisions.append(subject.next_k(round_of(1, accepted, 0.002, step_s=0.012, **told)))
        else:
            decisions.append(subject.next_k(run_of(decisions[-1].num_decode_tokens, now_s=now_s)))
    assert (decisions[-1].reason is Reason.FASTEST) is drafts


def test_a_load_of_a_while_ago_keeps_no_new_request_from_drafting() -> None:
    measurements = measured()
    measurements.replica(REPLICA).costs.add_step(32, 32, 0.010)
    measurements.replica(REPLICA).costs.add_step(32, 64, 0.020)
    others = [controller("off", measurements=measurements) for _ in range(31)]
    for other in others:
        other.next_k(observed(target_load=LoadReport(), now_s=99.0))
    for other in others:
        other.close(100.0)

    def prepares(now_s: float) -> bool:
        late = controller(measurements=measurements)
        late.next_k(observed(0, 1000, now_s=now_s))
        return late.will_draft_soon

    assert [prepares(now_s) for now_s in (100.1, 101.0)] == [False, True]
