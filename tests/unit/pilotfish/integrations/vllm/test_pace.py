"""Waiting no longer than a step, and asking for as much as pays: against an engine whose costs are known."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from pilotfish.integrations.vllm.pace import Pace, StepOutcome

STEP_S = 0.03
K = 8


def plain(num_rows: int, step_s: float = STEP_S) -> StepOutcome:
    return StepOutcome(step_s, 0, ((0, 0),) * num_rows)


@dataclass
class Engine:
    """Of vLLM and its drafter, what steps take and yield."""

    pace: Pace
    num_rows: int = 1
    wait_s: float = 0.0015
    token_s: float = 0.0001
    """To verify one draft token more."""
    acceptance: float = 0.8
    """Of each draft token after another."""
    now_s: float = 0.0
    num_tokens: int = 0
    asked: list[int] = field(default_factory=list)
    random: random.Random = field(default_factory=lambda: random.Random(0))

    def run(self, num_steps: int) -> float:
        """Its speed over that of plain decoding."""
        start_s, before = self.now_s, self.num_tokens
        for _ in range(num_steps):
            self.pace.advance(self.now_s, self.num_rows)
            length = self.pace.num_draft_tokens(self.num_rows)
            drafts = tuple((length, self._accepted(length)) for _ in range(self.num_rows))
            step_s = STEP_S + self.token_s * length * self.num_rows + self.wait_s * (length > 0)
            step_s *= self.random.uniform(0.9, 1.1)
            self.asked.append(length)
            self.now_s += step_s
            self.num_tokens += sum(1 + accepted for _, accepted in drafts)
            self.pace.add_step(StepOutcome(step_s, length, drafts))
        return (self.num_tokens - before) / self.num_rows * STEP_S / (self.now_s - start_s)

    def _accepted(self, length: int) -> int:
        return next((i for i in range(length) if self.random.random() > self.acceptance), length)

    def share_asked(self, num_steps: int) -> float:
        return sum(length > 0 for length in self.asked[-num_steps:]) / num_steps


@pytest.fixture
def pace() -> Pace:
    return Pace(0.0, K, is_measuring=True)


def test_a_step_waits_as_long_as_a_plain_one_takes(pace) -> None:
    pace.add_step(plain(1))
    pace.add_step(StepOutcome(9.0, 4, ((4, 4),)))
    assert pace.deadline_s(1) == STEP_S


def test_a_configured_deadline_holds() -> None:
    pace = Pace(0.005, K, is_measuring=True)
    pace.add_step(plain(1))
    assert pace.deadline_s(1) == 0.005


def test_before_any_measurement_a_step_waits_a_little(pace) -> None:
    assert 0 < pace.deadline_s(8) < 0.1


def test_batches_of_other_sizes_are_measured_by_themselves(pace) -> None:
    pace.add_step(plain(1))
    pace.add_step(plain(8, 3 * STEP_S))
    assert (pace.deadline_s(1), pace.deadline_s(8)) == (STEP_S, 3 * STEP_S)
    assert pace.deadline_s(2) == STEP_S  # the nearest that is known


def test_drafts_that_pay_are_asked_for_but_for_rare_plain_steps(pace) -> None:
    engine = Engine(pace)
    assert engine.run(1000) > 2
    assert 0.98 < engine.share_asked(1000) < 1
    assert pace.num_pauses == 0


def test_the_first_step_of_a_size_is_a_plain_one(pace) -> None:
    assert [pace.num_draft_tokens(8) for _ in range(3)] == [0, K, K]


def test_a_plain_step_that_cannot_be_measured_is_one_step(pace) -> None:
    asked = [pace.num_draft_tokens(8) > 0 for _ in range(1000)]
    assert sum(asked) > 0.96 * len(asked)


def test_plain_steps_are_the_rarer_the_more_drafts_win(pace) -> None:
    shares = []
    for acceptance in (0.25, 0.8):
        engine = Engine(Pace(0.0, K, is_measuring=True), acceptance=acceptance)
        engine.run(1000)
        shares.append(engine.share_asked(500))
    assert 0.95 < shares[0] < 0.975
    assert shares[1] > 0.99


def test_the_first_plain_steps_of_a_size_come_soon_one_after_another(pace) -> None:
    engine = Engine(pace)
    engine.run(40)
    assert engine.asked.count(0) >= 3


def test_shadows_that_hit_end_a_pause() -> None:
    shares = []
    for hits in (0, 8):
        engine = Engine(Pace(0.0, K, is_measuring=True), acceptance=0.0, wait_s=0.009)
        while engine.pace.num_pauses < 3:
            engine.run(1)
        engine.run(60)  # time makes up for what the last trial lost
        for _ in range(hits):
            engine.pace.add_shadow(K, K)
        engine.acceptance = 0.8
        engine.run(60)
        shares.append(engine.share_asked(40))
    assert shares[0] == 0
    assert shares[1] > 0.8


def test_while_asking_pays_plain_steps_are_no_shadows(pace) -> None:
    engine = Engine(pace)
    for _ in range(300):
        engine.run(1)
        assert not pace.wants_shadow(1)
    assert 0 in engine.asked


@pytest.fixture
def paused(pace) -> Engine:
    engine = Engine(pace, acceptance=0.0, wait_s=0.009)
    while pace.num_pauses < 3:
        engine.run(1)
    engine.run(60)  # time makes up for what the last trial lost
    return engine


def test_shadows_that_cost_time_are_none_due_until_that_is_made_up_for(pace, paused: Engine) -> None:
    assert any(pace.wants_shadow(1) for _ in range(8))
    for _ in range(3):
        pace.add_shadow_step(9.0, 1)
    assert not any(pace.wants_shadow(1) for _ in range(8))
    pace.advance(paused.now_s + 10.0, 1)
    assert any(pace.wants_shadow(1) for _ in range(8))


def test_a_shadow_step_that_took_less_than_a_plain_one_wins_nothing(pace, paused: Engine) -> None:
    for _ in range(100):
        pace.add_shadow_step(0.0, 1)
    for _ in range(3):
        pace.add_shadow_step(9.0, 1)
    assert not any(pace.wants_shadow(1) for _ in range(8))


def test_the_cost_of_a_token_is_measured(pace) -> None:
    assert pace.token_cost(8) == 0
    Engine(pace, 8, token_s=0.0006).run(200)
    assert pace.token_cost(8) == pytest.approx(0.0006 / STEP_S, rel=0.4)


def test_without_measuring_no_token_is_too_dear() -> None:
    pace = Pace(0.0, K, is_measuring=False)
    Engine(pace, 8, token_s=0.01).run(200)
    assert pace.token_cost(8) == 0
    assert not any(pace.wants_shadow(8) for _ in range(100))


@pytest.mark.parametrize("num_rows", [1, 8])
def test_asking_that_never_yields_loses_little(pace, num_rows: int) -> None:
    engine = Engine(pace, num_rows, wait_s=0.015, acceptance=0.0)
    assert engine.run(4000) > 0.98
    assert engine.share_asked(2000) < 0.05
    assert pace.num_pauses > 1


def test_in_its_first_seconds_too(pace) -> None:
    assert Engine(pace, 8, token_s=0.001, acceptance=0.1).run(300) > 0.96


def test_where_verifying_is_dear_shorter_drafts_are_asked_for(pace) -> None:
    engine = Engine(pace, 8, token_s=0.001, acceptance=0.6)
    assert engine.run(2000) > 1.05
    assert set(engine.asked[-500:]) <= {0, 2}


def test_what_begins_to_pay_is_found_out(pace) -> None:
    engine = Engine(pace, acceptance=0.0)
    engine.run(2000)
    engine.acceptance = 0.8
    engine.run(3000)
    assert engine.share_asked(1000) > 0.98


def test_one_size_of_batch_says_nothing_against_another(pace) -> None:
    engine = Engine(pace, 8, token_s=0.003)
    engine.run(500)
    assert engine.share_asked(100) < 0.5
    engine.num_rows = 1
    engine.token_s = 0.0001
    assert engine.run(500) > 2


def test_waits_in_vain_end_asking_for_a_while(pace) -> None:
    pace.add_step(plain(1))
    pace.advance(0.0, 1)
    assert pace.num_draft_tokens(1) == K
    for _ in range(6):
        pace.add_vain_wait(STEP_S, 1)
    assert pace.num_draft_tokens(1) == 0
    pace.advance(10.0, 1)
    assert pace.num_draft_tokens(1) == K


def test_a_process_that_was_stopped_in_a_wait_asks_again_soon(pace) -> None:
    pace.add_step(plain(1))
    pace.advance(0.0, 1)
    pace.add_vain_wait(60.0, 1)
    pace.advance(10.0, 1)
    assert pace.num_draft_tokens(1) == K


def test_without_measuring_every_step_asks() -> None:
    engine = Engine(Pace(0.0, K, is_measuring=False), acceptance=0.0)
    engine.run(500)
    assert engine.asked == [K] * 500


def test_a_single_draft_token_is_a_length_as_well() -> None:
    engine = Engine(Pace(0.0, 1, is_measuring=True))
    assert engine.run(300) > 1.3
