from __future__ import annotations

import dataclasses

import pytest

from orchestrator.control.decision import Observation
from orchestrator.control.measurements import Measurements
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from orchestrator.run_controller import RunController
from pilotfish.config import SpeculationConfig
from pilotfish.types import SamplingParams

REPLICA = "target-a"
OFF = ((1, 1000, 0),)
"""However many decode."""


def request(mode="auto", k=4, max_tokens=1000) -> GenerationRequest:
    return GenerationRequest(
        prompt_token_ids=(1,),
        sampling=SamplingParams(max_tokens=max_tokens),
        speculation=SpeculationOptions(mode=mode, proposer="eagle3"),
        num_speculative_tokens=k,
    )


def controller(mode="auto", k=4, max_tokens=1000, measurements=None, **config) -> RunController:
    return RunController(request(mode, k, max_tokens), measurements or Measurements(), SpeculationConfig(**config))


def run(
    subject: RunController,
    plain_s: float,
    drafted_s: float,
    num_tokens: int = 2000,
    prefills_s: tuple[float, ...] = (0.0,),
) -> list[tuple[int, int]]:
    """Every decision until num_tokens are out, with runs that take so long a token: (drafts, tokens).

    prefills_s: beside the runs in turn, for each token.
    """
    decisions: list[tuple[int, int]] = []
    observation = Observation(num_remaining_tokens=num_tokens)
    done = 0
    while done < num_tokens:
        decision = subject.next_k(observation)
        tokens = decision.num_decode_tokens
        assert 1 <= tokens <= num_tokens - done
        decisions.append((decision.num_draft_tokens, tokens))
        done += tokens
        token_s = drafted_s if decision.num_draft_tokens else plain_s
        prefill_s = prefills_s[len(decisions) % len(prefills_s)]
        observation = Observation(
            replica_id=REPLICA,
            num_output_tokens=done,
            num_remaining_tokens=num_tokens - done,
            num_requested_tokens=decision.num_draft_tokens,
            num_decoded_tokens=0 if decision.num_draft_tokens else tokens,
            num_committed_tokens=tokens,
            step_s=tokens * (token_s + prefill_s),
            token_s=token_s + prefill_s,
            prefill_s=prefill_s,
        )
    subject.end(observation)
    subject.close(0.0)
    return decisions


def share_drafted(decisions: list[tuple[int, int]]) -> float:
    return sum(tokens for drafts, tokens in decisions if drafts) / sum(tokens for _, tokens in decisions)


def test_on_is_one_drafted_run() -> None:
    assert run(controller("on"), 0.01, 0.02) == [(4, 2000)]


@pytest.mark.parametrize(("mode", "k", "reason"), [("off", 4, "off"), ("on", 0, "num_speculative_tokens is 0")])
def test_off_is_one_plain_run(mode: str, k: int, reason: str) -> None:
    subject = controller(mode, k)
    assert run(subject, 0.01, 0.001) == [(0, 2000)]
    assert reason in subject.limitation.text


def test_auto_drafts_where_it_is_faster() -> None:
    decisions = run(controller(), plain_s=0.01, drafted_s=0.006)
    assert decisions[0] == (4, 16)
    assert decisions[1] == (0, 4), "plain decoding is measured once"
    assert share_drafted(decisions) > 0.98


def test_prefills_are_held_against_neither() -> None:
    decisions = run(controller(), plain_s=0.01, drafted_s=0.006, prefills_s=(0.05, 0.0, 0.02))
    assert share_drafted(decisions) > 0.98
    decisions = run(controller(), plain_s=0.01, drafted_s=0.013, num_tokens=4000, prefills_s=(0.0, 0.05, 0.0))
    assert share_drafted(decisions) < 0.1


def test_auto_gives_up_where_it_is_slower_but_tries_again() -> None:
    subject = controller()
    decisions = run(subject, plain_s=0.01, drafted_s=0.013, num_tokens=4000)
    assert 0.01 < share_drafted(decisions) < 0.1
    assert "plain decoding is faster (0.77 of its speed with drafts)" in subject.limitation.text


def test_answers_shorter_than_the_interval_try_for_each_other() -> None:
    measurements, num_probes = Measurements(), 0
    for num_tokens in (8000, *[128] * 40):
        decisions = run(controller(measurements=measurements), plain_s=0.01, drafted_s=0.013, num_tokens=num_tokens)
        num_probes += num_tokens == 128 and any(num_draft_tokens for num_draft_tokens, _ in decisions)
    assert 4 <= num_probes <= 40 * 128 // 512


@pytest.mark.parametrize(("num_sequences", "expected"), [(1, 16), (64, 32), (256, 128)])
def test_plain_runs_grow_with_the_load_but_the_first(num_sequences: int, expected: int) -> None:
    measurements = Measurements()
    replica = measurements.replica(REPLICA)
    replica.costs.add_step(num_sequences, num_sequences, 0.004)
    replica.add_decode(0.004)
    for _ in range(num_sequences - 1):
        replica.join()
    subject = RunController(request("auto"), measurements, SpeculationConfig(num_speculative_tokens_per_batch_size=OFF))
    first = Observation(num_remaining_tokens=900)
    assert subject.next_k(first).num_decode_tokens == 16
    assert (
        subject.next_k(dataclasses.replace(first, num_output_tokens=16, replica_id=REPLICA)).num_decode_tokens
        == expected
    )


def test_a_change_of_the_text_is_noticed() -> None:
    measurements = Measurements()
    subject = controller(measurements=measurements)
    run(subject, plain_s=0.01, drafted_s=0.013)
    assert share_drafted(run(subject, plain_s=0.01, drafted_s=0.005)) > 0.6
    assert share_drafted(run(controller(measurements=measurements), plain_s=0.01, drafted_s=0.005)) > 0.9


def test_plain_decoding_is_measured_again_now_and_then() -> None:
    decisions = run(controller(), plain_s=0.01, drafted_s=0.006, num_tokens=16 * 300)
    assert 2 <= decisions.count((0, 4)) <= 4


def test_without_the_drafter_the_rest_is_one_plain_run() -> None:
    subject = controller("on")
    decision = subject.next_k(Observation(num_remaining_tokens=50, drafter_absence="it has none"))
    assert (decision.num_draft_tokens, decision.num_decode_tokens) == (0, 50)
    assert subject.limitation.text == "it has none"


def test_short_answers_are_not_worth_measuring() -> None:
    assert run(controller(max_tokens=8), 0.01, 0.02, num_tokens=8) == [(0, 8)]


def test_answers_of_one_run_are_measured_as_well() -> None:
    measurements = Measurements()
    answers = [run(controller(measurements=measurements), 0.01, 0.013, num_tokens=12) for _ in range(200)]
    assert share_drafted([decision for answer in answers[100:] for decision in answer]) < 0.1


def test_runs_that_are_too_short_to_be_measured_are_made_longer() -> None:
    subject = controller(decode_run_tokens=2)
    assert share_drafted(run(subject, plain_s=0.01, drafted_s=0.013, num_tokens=4000)) < 0.1


def test_what_drafted_runs_take_on_one_replica_says_nothing_of_another() -> None:
    measurements = Measurements()
    for replica_id in ("a", "b"):
        measurements.replica(replica_id).costs.add_step(1, 1, 0.01)
        measurements.replica(replica_id).add_decode(0.01)
    runs = measurements.replica("a").rounds("eagle3").runs[1]
    for _ in range(9):
        runs.add(0.033)
    for replica_id, is_drafted in (("a", False), ("b", True)):
        subject = controller(measurements=measurements)
        decision = subject.next_k(Observation(num_output_tokens=1, num_remaining_tokens=900, replica_id=replica_id))
        assert (decision.num_draft_tokens > 0) is is_drafted
        subject.close(0.0)
