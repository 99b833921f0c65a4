"""Controllers on a simulated stack: never slower than the better of always-on and off, and no oscillation."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest

from orchestrator.control.controller import Controller
from orchestrator.control.decision import Decision, RoundResult
from orchestrator.control.replica_state import ControlState
from orchestrator.requests.request import Mode
from pilotfish.config import SpeculationConfig
from pilotfish.emulation.profiles import load_profile
from pilotfish.step_table import StepTable
from tests.support.simulated_stack.closed_loop import Client, closed_loop_tokens_per_s
from tests.support.simulated_stack.controller_sequence import ControllerSequence
from tests.support.simulated_stack.controller_stack import ControllerStack
from tests.support.simulated_stack.controllers import controller
from tests.support.simulated_stack.world import BUSY_MACHINE

A100 = load_profile("a100-70b")
CLOSE = 0.95
"""As fast as the better of off and on, at every load: those two know from the start what they do."""


def fresh() -> ControlState:
    return ControlState(SpeculationConfig())


def always_off() -> Controller:
    return controller("off", fresh(), 0)


def always_on(num_draft_tokens: int) -> Controller:
    return controller("on", fresh(), num_draft_tokens)


def adaptive(state: ControlState, num_draft_tokens: int) -> Controller:
    return controller("auto", state, num_draft_tokens)


def throughput(
    concurrency: int, acceptance: float, make, warm_up_s: float = 1.0, *, delays: bool = False, ahead: float = 0.0
) -> float:
    """Tokens per second of all sequences. Of one alone, the mean over three: the luck of its first rounds is much."""
    measured_s = max(1.0, 6 / concurrency)
    seeds = range(3 if concurrency == 1 else 1)
    num_tokens, end_s = 0, 0.0
    for seed in seeds:
        # What is measured is kept for the next one.
        stack = ControllerStack(A100, acceptance, seed, delays=delays, ahead=ahead, start_s=end_s)
        sessions = [ControllerSequence(stack, make()) for _ in range(concurrency)]
        stack.world.run(end_s + warm_up_s)
        before = stack.num_tokens
        end_s += warm_up_s + measured_s
        stack.world.run(end_s)
        num_tokens += stack.num_tokens - before
        for session in sessions:
            session.controller.close()
    return num_tokens / measured_s / len(seeds)


@pytest.mark.parametrize(("concurrency", "acceptance"), [(1, 0.9), (8, 0.6), (32, 0.3), (128, 0.6)])
def test_never_slower_than_the_better_of_always_on_and_off(concurrency, acceptance) -> None:
    state = fresh()
    off = throughput(concurrency, acceptance, always_off)
    on = max(throughput(concurrency, acceptance, lambda k=k: always_on(k)) for k in (1, 3, 5))
    auto = throughput(concurrency, acceptance, lambda: adaptive(state, 5))
    assert auto >= CLOSE * max(off, on), (auto, off, on)


@pytest.mark.parametrize(("concurrency", "acceptance"), [(8, 0.6), (64, 0.8)])
def test_never_slower_beside_prefills(concurrency: int, acceptance: float) -> None:
    """A prompt makes a round up to five times as long, and tokens of plain runs as well; which of them fall into the
    seconds measured is luck of some 2 %."""
    tokens_per_s = {}
    modes: tuple[Mode, ...] = ("off", "on", "auto")
    for mode in modes:
        stack = ControllerStack(A100, acceptance, prompt_tokens=(150, 900, 250, 80, 330), ahead=0.3)
        make = partial(controller, mode, fresh(), 5)
        tokens_per_s[mode] = closed_loop_tokens_per_s(
            stack, [make] * concurrency, (96, 160, 128), warm_up_s=2.0, duration_s=20.0
        )
    assert tokens_per_s["auto"] >= 0.97 * max(tokens_per_s["off"], tokens_per_s["on"]), tokens_per_s


@pytest.mark.parametrize(
    ("profile_name", "concurrency", "answered", "acceptance"),
    [
        ("cpu", 1, 0.6, 0.9),
        ("a100-70b", 1, 0.25, 0.9),
        ("a100-70b", 64, 0.5, 0.9),
    ],
)
def test_never_slower_with_a_drafter_that_often_has_no_answer(
    profile_name: str, concurrency: int, answered: float, acceptance: float
) -> None:
    """A lookup's: what it is asked in vain costs time, and few of the sequences have drafts in a step."""
    tokens_per_s = {}
    modes: tuple[Mode, ...] = ("off", "on", "auto")
    for mode in modes:
        stack = ControllerStack(load_profile(profile_name), acceptance, answered=answered)
        make = partial(controller, mode, fresh(), 5)
        tokens_per_s[mode] = closed_loop_tokens_per_s(
            stack, [make] * concurrency, (96, 160, 128), warm_up_s=2.0, duration_s=max(2.0, 20 / concurrency)
        )
    # With 64 of which every other has a draft, those that have none wait for the steps of the others.
    bound = 0.9 if (concurrency, answered) == (64, 0.5) else CLOSE
    assert tokens_per_s["auto"] >= bound * max(tokens_per_s["off"], tokens_per_s["on"]), tokens_per_s


MIXTURES: tuple[tuple[Mode, int, int, float], ...] = (
    ("off", 3, 8, 0.3),
    ("off", 6, 5, 0.3),
    ("off", 12, 20, 0.9),
    ("off", 26, 6, 0.9),
    ("on", 4, 1, 0.3),
    ("on", 13, 51, 0.3),
    ("on", 32, 32, 0.6),
)


@pytest.mark.parametrize(("others", "num_others", "num_own", "acceptance"), MIXTURES)
def test_never_slower_beside_requests_of_another_mode(others: Mode, num_others, num_own, acceptance) -> None:
    """All of the replica's tokens: what drafts cost those that do without counts as well. By the luck of their starts
    sequences that all draft fall into one of two rhythms, of which one is a tenth faster: with this seed always
    into the slower one."""
    rates = {}
    modes: tuple[Mode, ...] = ("off", "on", "auto")
    for mode in modes:
        state, stack = fresh(), ControllerStack(A100, acceptance, seed=1)
        for _ in range(num_others):
            ControllerSequence(stack, controller(others, state, 5))
        for _ in range(num_own):
            ControllerSequence(stack, controller(mode, state, 5))
        stack.world.run(1.0)
        rates[mode] = rate_between(stack, 4.0)
    assert rates["auto"] >= CLOSE * max(rates["off"], rates["on"]), rates


def test_drafts_are_as_long_as_those_that_share_the_steps() -> None:
    """Of two lengths the sequences wait for each other: 8 drafts a round beside 8 beat 5, which would be as fast."""
    rates = {}
    modes: tuple[Mode, ...] = ("on", "auto")
    for mode in modes:
        state, stack = fresh(), ControllerStack(A100, 0.9, noise=BUSY_MACHINE)
        makers = [partial(controller, "on", state, 8)] * 3 + [partial(controller, mode, state, 8)] * 8
        rates[mode] = closed_loop_tokens_per_s(stack, makers, (96, 160, 128), warm_up_s=1.0, duration_s=6.0)
    assert rates["auto"] >= CLOSE * rates["on"], rates


def rate_between(stack: ControllerStack, seconds: float) -> float:
    before = stack.num_tokens
    stack.world.run(stack.world.now_s + seconds)
    return (stack.num_tokens - before) / seconds


def test_a_load_step_switches_once_each_way() -> None:
    state, acceptance = fresh(), 0.5
    stack = ControllerStack(A100, acceptance, delays=False)
    ControllerSequence(stack, adaptive(state, 5))
    alone = rate_between(stack, 15.0)
    others = [ControllerSequence(stack, adaptive(state, 5)) for _ in range(63)]
    rate_between(stack, 2.0)
    assert rate_between(stack, 3.0) >= 0.98 * throughput(64, acceptance, always_off)
    assert state.num_switches == {False: 1}
    for session in others:
        session.stop()
    rate_between(stack, 0.5)
    assert rate_between(stack, 8.0) >= 0.95 * alone  # the next trial comes later
    assert state.num_switches == {False: 1, True: 1}


def test_short_answers_of_many_are_a_steady_load() -> None:
    """Their runs are long, and yet they are seen, so that the gate stays as it is."""
    concurrency, lengths = 128, (48, 80, 64)
    state = fresh()
    stack = ControllerStack(A100, 0.5, noise=BUSY_MACHINE)
    for number in range(concurrency):
        Client(stack, lambda: adaptive(state, 8), lengths, number, concurrency)
    stack.world.run(2.0)
    replica, loads = state.replicas["t"], []
    for tick in range(20):
        stack.world.run(2.1 + 0.1 * tick)
        loads.append(replica.load(stack.world.now_s))
    assert min(loads) >= 0.75 * concurrency
    assert state.num_switches[True] == 0


def test_drafts_that_go_bad_are_dropped_and_found_again() -> None:
    stack = ControllerStack(A100, 0.8, delays=False)
    ControllerSequence(stack, adaptive(fresh(), 5))
    assert rate_between(stack, 5.0) > 2.2 * 123
    stack.acceptance = 0.02
    rate_between(stack, 2.0)
    assert rate_between(stack, 5.0) > 0.95 * 123
    stack.acceptance = 0.8
    rate_between(stack, 15.0)
    assert rate_between(stack, 5.0) > 2.2 * 123


def test_a_drafter_that_is_slower_than_the_target_is_soon_left_alone() -> None:
    """As a head on the same two cores: a draft token takes as long as a decode step. The next request knows."""
    slow = dataclasses.replace(A100, draft=A100.target)
    state = fresh()
    plain = throughput(1, 0.8, always_off)
    for num_tokens, least in ((128, 0.75), (256, 0.97)):
        stack = ControllerStack(slow, 0.8, delays=False)
        session = ControllerSequence(stack, adaptive(state, 5), num_tokens)
        while session.num_remaining > 0:
            stack.world.run(stack.world.now_s + 0.001)
        assert num_tokens / stack.world.now_s >= least * plain


@pytest.mark.parametrize(("concurrency", "acceptance"), [(1, 0.9), (32, 0.3)])
def test_never_slower_in_the_noise_of_a_busy_machine(concurrency: int, acceptance: float) -> None:
    """Without a profile, from the first request on: what was measured by chance at first must not stay."""
    rates = {"off": 0.0, "on": 0.0, "auto": 0.0}
    for seed in range(2):
        state = fresh()
        arms = {
            "off": always_off,
            "on": lambda: always_on(8),
            "auto": lambda state=state: adaptive(state, 8),
        }
        for name, make in arms.items():
            stack = ControllerStack(A100, acceptance, seed, ahead=0.5, noise=BUSY_MACHINE)
            rates[name] += closed_loop_tokens_per_s(
                stack, [make] * concurrency, (96, 160, 128), warm_up_s=1.0, duration_s=max(1.5, 12 / concurrency)
            )
    assert rates["auto"] >= 0.975 * max(rates["off"], rates["on"]), rates


@pytest.mark.parametrize(("concurrency", "acceptance", "factor"), [(1, 0.9, 0.7), (64, 0.3, 1.3)])
def test_never_slower_by_a_table_that_is_wrong(concurrency: int, acceptance: float, factor: float) -> None:
    tables: dict[StepTable, StepTable] = {}

    def misled(state: ControlState) -> Controller:
        subject = adaptive(state, 5)
        decide = subject.decide

        def decide_misled(result: RoundResult) -> Decision:
            table = result.step_table
            wrong = StepTable(table.rows, tuple(round(factor * step_ns) for step_ns in table.step_ns))
            return decide(dataclasses.replace(result, step_table=tables.setdefault(table, wrong)))

        subject.decide = decide_misled  # type: ignore[method-assign]
        return subject

    fixed = [throughput(concurrency, acceptance, make) for make in (always_off, lambda: always_on(5))]
    state = fresh()
    auto = throughput(concurrency, acceptance, lambda: misled(state), warm_up_s=4.0)
    assert auto >= 0.9 * max(fixed), (auto, fixed)


@pytest.mark.parametrize(("concurrency", "acceptance"), [(1, 0.3), (32, 0.9)])
def test_a_cold_start_costs_little(concurrency: int, acceptance: float) -> None:
    """The first seconds of an orchestrator that knows nothing."""
    state = fresh()
    off, on, auto = (
        throughput(concurrency, acceptance, make, warm_up_s=0.1)
        for make in (always_off, lambda: always_on(5), lambda: adaptive(state, 5))
    )
    assert auto >= 0.9 * max(off, on), (auto, off, on)
