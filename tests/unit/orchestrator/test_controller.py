from __future__ import annotations

import pytest

from orchestrator.controller import Controller, Observation
from orchestrator.measurements import Measurements
from orchestrator.request import GenerationRequest, SpeculationOptions
from pilotfish.types import SamplingParams


def controller(mode="auto", k=4, max_tokens=1000, measurements=None, run=16) -> Controller:
    request = GenerationRequest(
        prompt_token_ids=(1,),
        sampling=SamplingParams(max_tokens=max_tokens),
        speculation=SpeculationOptions(mode=mode),
        num_speculative_tokens=k,
    )
    return Controller(request, measurements or Measurements(), decode_run_tokens=run)


def observed(done=100, remaining=900, **values) -> Observation:
    return Observation(num_output_tokens=done, num_remaining_tokens=remaining, **values)


def measured(decode_s=0.01, verify_s=0.011, propose_s=0.0005) -> Measurements:
    measurements = Measurements()
    measurements.times.add_decode(decode_s, 1)
    measurements.times.add_verify(verify_s, 4)
    measurements.proposer("draft").add_propose(propose_s, 1)
    return measurements


def test_off_is_one_run_over_everything_that_is_left() -> None:
    decision = controller("off").next_k(observed(0, 300))
    assert (decision.num_draft_tokens, decision.num_decode_tokens) == (0, 300)
    assert "off" in decision.reason


def test_zero_draft_tokens_is_off() -> None:
    subject = controller("on", k=0)
    assert subject.next_k(observed()).num_draft_tokens == 0
    assert subject.limitation == "num_speculative_tokens is 0"


def test_on_drafts_in_every_round_after_the_first_token() -> None:
    subject = controller("on")
    assert subject.next_k(observed(0, 1000)).num_draft_tokens == 0
    for _ in range(50):
        decision = subject.next_k(observed(num_draft_tokens=4, num_requested_tokens=4, num_accepted_tokens=0))
        assert decision.num_draft_tokens == 4
    assert subject.limitation == ""


@pytest.mark.parametrize(("remaining", "expected"), [(1, 0), (2, 1), (4, 3), (5, 4), (100, 4)])
def test_no_more_is_drafted_than_can_be_used(remaining: int, expected: int) -> None:
    assert controller("on").next_k(observed(100, remaining)).num_draft_tokens == expected


def test_short_answers_are_not_worth_a_drafter_in_auto() -> None:
    subject = controller("auto", max_tokens=9, measurements=measured())
    assert not subject.will_draft_soon
    assert subject.next_k(observed(0, 9)).num_decode_tokens == 9
    assert "fewer than 10 tokens" in subject.limitation


def test_without_a_drafter_it_decodes_in_runs_and_looks_again() -> None:
    subject = controller("on")
    absent = subject.next_k(observed(drafter_absence="there is no draft replica"))
    assert (absent.num_draft_tokens, absent.num_decode_tokens) == (0, 16)
    assert subject.limitation == "there is no draft replica"
    assert subject.next_k(observed()).num_draft_tokens == 4


def test_auto_measures_plain_decoding_before_it_compares() -> None:
    subject = controller("auto")
    assert subject.next_k(observed()).reason == "plain decoding is measured first"
    decision = subject.next_k(observed(num_decoded_tokens=4, step_s=0.04))
    assert decision.num_draft_tokens > 0


def test_auto_drafts_far_when_guesses_hold_and_not_at_all_when_they_never_do() -> None:
    good, bad = controller("auto", measurements=measured()), controller("auto", measurements=measured())
    for _ in range(30):
        best = good.next_k(
            observed(num_requested_tokens=4, num_draft_tokens=4, num_accepted_tokens=4, propose_s=0.002, step_s=0.011)
        )
        worst = bad.next_k(
            observed(num_requested_tokens=4, num_draft_tokens=4, num_accepted_tokens=0, propose_s=0.002, step_s=0.011)
        )
    assert best.num_draft_tokens == 4
    assert worst.num_draft_tokens == 0
    assert "plain decoding is faster" in bad.limitation


def test_a_drafter_as_slow_as_decoding_is_not_used() -> None:
    subject = controller("auto", measurements=measured(propose_s=0.02))
    assert subject.next_k(observed()).num_draft_tokens == 0
    assert not subject.will_draft_soon


def test_waiting_in_vain_counts_as_the_price_of_a_proposal() -> None:
    subject = controller("auto", measurements=measured())
    assert subject.next_k(observed()).num_draft_tokens > 0
    for _ in range(20):
        decision = subject.next_k(
            observed(num_requested_tokens=4, num_decoded_tokens=1, propose_s=0.2, step_s=0.01, draft_problem="late")
        )
        if decision.num_draft_tokens == 0:
            break
    assert decision.num_draft_tokens == 0


def probes(subject: Controller, num_tokens: int) -> list[int]:
    """The plain tokens between the probes of a controller whose guesses never hold."""
    gaps, gap = [], 0
    while num_tokens > 0:
        decision = subject.next_k(
            observed(num_decoded_tokens=16, step_s=0.16)
            if gap
            else observed(num_requested_tokens=2, num_draft_tokens=2, propose_s=0.001, step_s=0.011)
        )
        if decision.num_draft_tokens:
            assert "probe" in decision.reason
            gaps.append(gap)
            gap = 0
        else:
            gap += decision.num_decode_tokens
            num_tokens -= decision.num_decode_tokens
    return gaps


def test_at_zero_it_probes_ever_more_rarely_but_never_gives_up() -> None:
    subject = controller("auto", measurements=measured(), max_tokens=10**6)
    for _ in range(60):
        decision = subject.next_k(
            observed(num_requested_tokens=4, num_draft_tokens=4, num_accepted_tokens=0, propose_s=0.002, step_s=0.011)
        )
    assert decision.num_draft_tokens == 0
    gaps = probes(subject, 5000)
    assert gaps == sorted(gaps)
    assert gaps[0] <= 48
    assert gaps[-1] in range(512, 544)


def test_probes_bring_speculation_back_when_guesses_hold_again() -> None:
    subject = controller("auto", measurements=measured(), max_tokens=10**6)
    for _ in range(60):
        subject.next_k(
            observed(num_requested_tokens=4, num_draft_tokens=4, num_accepted_tokens=0, propose_s=0.002, step_s=0.011)
        )
    decision = subject.next_k(observed(num_decoded_tokens=16, step_s=0.16))
    reasons = set()
    for _ in range(3000):
        num_drafted = decision.num_draft_tokens
        decision = subject.next_k(
            observed(
                num_requested_tokens=num_drafted,
                num_draft_tokens=num_drafted,
                num_accepted_tokens=num_drafted,
                propose_s=0.0005 * num_drafted,
                step_s=0.011,
            )
            if num_drafted
            else observed(num_decoded_tokens=16, step_s=0.16)
        )
        reasons.add(decision.reason)
    assert decision.reason == "measured: the fastest"
    assert decision.num_draft_tokens == 4


def test_what_one_request_learns_the_next_begins_with() -> None:
    measurements = measured()
    first = controller("auto", measurements=measurements)
    for _ in range(60):
        first.next_k(
            observed(num_requested_tokens=4, num_draft_tokens=4, num_accepted_tokens=0, propose_s=0.002, step_s=0.011)
        )
    assert not controller("auto", measurements=measurements).will_draft_soon


def test_the_prefill_is_no_decode_step() -> None:
    measurements = Measurements()
    controller("auto", measurements=measurements).next_k(
        observed(done=1, remaining=999, num_decoded_tokens=1, step_s=5.0)
    )
    assert measurements.times.decode_s is None


def test_a_drafter_without_ideas_is_asked_ever_more_rarely_until_a_draft_holds() -> None:
    subject = controller("on", run=8)
    lengths = [
        subject.next_k(observed(num_requested_tokens=4, num_decoded_tokens=1)).num_decode_tokens for _ in range(5)
    ]
    assert lengths == [2, 4, 8, 8, 8]
    rejected = subject.next_k(observed(num_requested_tokens=4, num_draft_tokens=4))
    assert rejected.num_decode_tokens == 8
    accepted = subject.next_k(observed(num_requested_tokens=4, num_draft_tokens=4, num_accepted_tokens=1))
    assert accepted.num_decode_tokens == 1


def test_a_probe_that_the_drafter_has_no_answer_to_is_none() -> None:
    subject = controller("auto", measurements=measured(), max_tokens=10**6)
    for _ in range(60):
        subject.next_k(observed(num_requested_tokens=4, num_draft_tokens=4, propose_s=0.002, step_s=0.011))
    for _ in range(2):
        subject.next_k(observed(num_decoded_tokens=16, step_s=0.16))
    decision = subject.next_k(observed(num_decoded_tokens=16, step_s=0.16))
    assert "probe" in decision.reason
    for _ in range(3):
        decision = subject.next_k(observed(num_requested_tokens=2, num_decoded_tokens=1, step_s=0.01))
        assert "probe" in decision.reason
    decision = subject.next_k(observed(num_requested_tokens=2, num_draft_tokens=2, propose_s=0.001, step_s=0.011))
    assert decision.num_draft_tokens == 0


def test_a_draft_that_cut_into_a_run_teaches_acceptance_and_the_time_of_decoding() -> None:
    measurements = measured(decode_s=0.02)
    subject = controller("auto", measurements=measurements)
    subject.next_k(
        observed(num_requested_tokens=4, num_decoded_tokens=10, num_draft_tokens=3, num_accepted_tokens=3, step_s=0.1)
    )
    decode_s = measurements.times.decode_s
    assert decode_s is not None
    assert 0.01 < decode_s < 0.02
    assert measurements.times.verify_s(4) == pytest.approx(0.011)
    assert measurements.proposer("draft").acceptance.probabilities(1)[0] > 0.6


def test_short_runs_do_not_pass_for_plain_decoding() -> None:
    measurements = measured(decode_s=0.01)
    controller("on", measurements=measurements).next_k(
        observed(num_requested_tokens=4, num_decoded_tokens=1, step_s=0.05)
    )
    assert measurements.times.decode_s == pytest.approx(0.01)


def test_where_speculation_always_wins_plain_decoding_is_measured_now_and_then() -> None:
    subject = controller("auto", measurements=measured())
    won = observed(num_requested_tokens=4, num_draft_tokens=4, num_accepted_tokens=4, propose_s=0.002, step_s=0.011)
    decisions = [subject.next_k(won) for _ in range(127)]
    assert all(decision.num_draft_tokens for decision in decisions[:-1])
    assert (decisions[-1].num_draft_tokens, decisions[-1].num_decode_tokens) == (0, 4)
    assert "measured again" in decisions[-1].reason
    assert subject.next_k(observed(num_decoded_tokens=4, step_s=0.04)).num_draft_tokens == 4


def test_a_draft_must_promise_what_its_round_trip_costs() -> None:
    measurements = measured(decode_s=0.010)
    measurements.times.add_verify(0.014, 1)
    assert controller("auto", measurements=measurements).next_k(observed()).min_accepted_tokens == pytest.approx(0.4)
    assert controller("on", measurements=measurements).next_k(observed()).min_accepted_tokens == 0


def test_trees_cost_by_their_tokens_and_are_accepted_by_depth() -> None:
    """Verifying 8 tokens takes twice as long as 4: a depth of 2 in 8 tokens does not pay what it does in 2."""

    def chosen(num_draft_tokens: int) -> int:
        measurements = measured(decode_s=0.01, verify_s=0.011)
        measurements.times.add_verify(0.04, 8)
        subject = controller(k=2, measurements=measurements)
        tree = {"num_draft_tokens": num_draft_tokens, "draft_depth": 2, "num_accepted_tokens": 2}
        for _ in range(30):
            decision = subject.next_k(observed(num_requested_tokens=2, **tree))
        return decision.num_draft_tokens

    assert chosen(2) == 2
    assert chosen(8) < 2
