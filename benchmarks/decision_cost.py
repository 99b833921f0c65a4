"""What does a decision of the controller cost the orchestrator?

Controllers of mode `auto` serve 1 and 64 sequences of a simulated stack (profile a100-70b, virtual time), so that they
decide and learn as in production. The clock times `Controller.decide` alone: what it learns from the round before, and
the decision. A verification waits for both.
"""

import itertools
import statistics
import sys
from collections.abc import Sequence
from time import perf_counter_ns

import shared.checkout  # noqa: F401  # finds tests.support
from shared.report import Report, parser

from orchestrator.control.controller import Controller
from orchestrator.control.decision import Decision, RoundResult
from orchestrator.control.replica_state import ControlState
from pilotfish.config import SpeculationConfig
from pilotfish.emulation.profiles import load_profile
from tests.support.simulated_stack.controller_sequence import ControllerSequence
from tests.support.simulated_stack.controller_stack import ControllerStack
from tests.support.simulated_stack.controllers import controller

PROFILE = load_profile("a100-70b")
ASKED_US = {1: 30.0, 64: 20.0}
"""Median by the sequences that decode: 64 share each plan, so that fewer of their decisions compute one."""
ACCEPTANCES = (0.9, 0.3)
"""Acceptance of a draft token: where drafts pay, and where they do not."""
MAX_DRAFT_TOKENS = 8
WARM_UP = 1000
NUM_DECISIONS, QUICK_DECISIONS = 20_000, 2_000


def timed_controller(state: ControlState, times_ns: list[int]) -> Controller:
    """Notes how long each decision takes."""
    timed = controller("auto", state, MAX_DRAFT_TOKENS)
    decide = timed.decide

    def decide_timed(result: RoundResult) -> Decision:
        start_ns = perf_counter_ns()
        decision = decide(result)
        times_ns.append(perf_counter_ns() - start_ns)
        return decision

    timed.decide = decide_timed  # type: ignore[method-assign]
    return timed


def measure(num_sequences: int, acceptance: float, num_decisions: int) -> tuple[list[float], float]:
    """Microseconds of each decision after the warm-up, of all sequences together; and the share of all that draft."""
    stack, state = ControllerStack(PROFILE, acceptance), ControlState(SpeculationConfig())
    times_ns: list[int] = []
    for _ in range(num_sequences):
        ControllerSequence(stack, timed_controller(state, times_ns))
    while len(times_ns) < WARM_UP + num_decisions:
        stack.world.run(stack.world.now_s + 1.0)
    num_drafting = sum(count for k, count in state.num_rounds_by_k.items() if k)
    return [time_ns / 1e3 for time_ns in times_ns[WARM_UP:]], num_drafting / len(times_ns)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    num_decisions = QUICK_DECISIONS if options.quick else NUM_DECISIONS
    report = Report(
        "What does a decision of the controller cost the orchestrator?",
        {"stack": f"SIMULATED {PROFILE.name}", "decisions": num_decisions, "draft tokens at most": MAX_DRAFT_TOKENS},
    )
    for acceptance, (num_sequences, asked_us) in itertools.product(ACCEPTANCES, ASKED_US.items()):
        times_us, drafting = measure(num_sequences, acceptance, num_decisions)
        median_us = statistics.median(times_us)
        report.row(
            sequences=num_sequences,
            acceptance=acceptance,
            drafting=drafting,
            median_us=median_us,
            mean_us=statistics.fmean(times_us),
            p99_us=statistics.quantiles(times_us, n=100)[98],
        )
        report.check(f"{num_sequences} sequences, acceptance {acceptance}, median", median_us, asked_us, "us")
    report.finish(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
