"""Answers whose time per token, in plain steps, is known beforehand."""

import random
from collections.abc import Sequence

import pytest

from orchestrator.control.drafter_choice import DrafterChoice
from orchestrator.control.in_target_controller import InTargetController
from orchestrator.requests.kind import Kind

SCATTER = 0.3
"""Of answers' times, around their drafter's mean."""


def answer(choice: DrafterChoice, times: Sequence[float], rng: random.Random, kind: Kind = Kind.PLAIN) -> list[float]:
    """Seconds that an answer takes with the drafter that is chosen, then with each."""
    tokens = rng.choice((20, 60, 120, 200))
    took = [tokens * max(0.15, rng.gauss(mean, SCATTER * mean)) for mean in times]
    chosen = int(choice.choose(kind, [str(number) for number in range(len(times))]))
    choice.note(kind, str(chosen), plain_s=tokens, seconds=took[chosen])
    return [took[chosen], *took]


def speed(phases: Sequence[Sequence[float]], num_answers: int, seed: int) -> float:
    """Over the best single drafter of each phase."""
    choice, rng, chosen_s, best_s = DrafterChoice(), random.Random(seed), 0.0, 0.0
    for times in phases:
        chosen, *each = map(sum, zip(*(answer(choice, times, rng) for _ in range(num_answers)), strict=True))
        chosen_s, best_s = chosen_s + chosen, best_s + min(each)
    return best_s / chosen_s


@pytest.mark.parametrize("times", [(0.77, 0.55), (0.55, 0.77), (0.55, 0.58), (0.5, 1.0)])
def test_it_costs_at_most_2_percent_of_the_best_single_drafters_speed(times: Sequence[float]) -> None:
    assert sum(speed([times], 240, seed) for seed in range(50)) / 50 >= 0.98


def test_a_drafter_that_became_worse_is_left_and_taken_again_when_it_is_better() -> None:
    good, bad = (0.5, 0.8), (1.0, 0.8)
    assert sum(speed([good, bad, good], 400, seed) for seed in range(20)) / 20 >= 0.95


def test_kinds_of_requests_have_drafters_of_their_own() -> None:
    choice, rng = DrafterChoice(), random.Random(1)
    for _ in range(100):
        answer(choice, (0.5, 0.9), rng, Kind.PLAIN)
        answer(choice, (0.9, 0.5), rng, Kind.GRAMMAR)
    chosen = [int(choice.choose(kind, ["0", "1"])) for kind in (Kind.PLAIN, Kind.GRAMMAR) for _ in range(5)]
    assert chosen == [0] * 5 + [1] * 5


def test_answers_that_were_not_timed_say_nothing() -> None:
    choice = DrafterChoice()
    choice.note(Kind.PLAIN, "a", plain_s=0.0, seconds=0.0)
    assert choice.choose(Kind.PLAIN, ["a", "b"]) == "a"


def test_the_only_drafter_is_chosen_and_who_is_not_tried_comes_in_turn() -> None:
    choice = DrafterChoice()
    assert choice.choose(Kind.PLAIN, ["only"]) == "only"
    assert choice.choose(Kind.PLAIN, ["a", "b"]) == "a"
    choice.note(Kind.PLAIN, "a", plain_s=1.0, seconds=0.1)
    assert choice.choose(Kind.PLAIN, ["a", "b"]) == "b"


def test_a_target_whose_steps_are_dear_has_another_drafter_than_one_whose_steps_are_cheap(virtual_replica) -> None:
    cheap = virtual_replica(base_s=0.01, replica_id="cheap")
    dear = virtual_replica(base_s=0.08, replica_id="dear", state=cheap.state)
    for replica, in_target_token_s in ((cheap, 0.007), (dear, 0.06)):
        replica.overhead_s, replica.in_target_token_s = 0.03, in_target_token_s  # the pool is as far from both
        for _ in range(8):
            replica.begin(max_tokens=200, proposer="draft")
            replica.run(60.0)
            replica.begin(max_tokens=200, proposer="eagle3", kind=InTargetController)
            replica.run(60.0)
    chosen = [cheap.state.choose_proposer(name, Kind.PLAIN, ["draft", "eagle3"]) for name in ("cheap", "dear")]
    assert chosen == ["eagle3", "draft"]


def test_an_answer_that_moves_to_another_target_tells_of_each_what_it_took_there(virtual_replica) -> None:
    replica = virtual_replica(replica_id="lost")
    request = replica.begin(max_tokens=300, proposer="draft")
    replica.run(1.0)
    replica.replica_id = "next"
    replica.run(30.0)
    assert request.num_tokens >= 300
    for name in ("lost", "next", "never seen"):
        known = name != "never seen"
        assert replica.state.choose_proposer(name, Kind.PLAIN, ["draft", "eagle3"]) == ("eagle3" if known else "draft")
