"""What does a decision of the controller cost the orchestrator?

Controllers of mode `auto` serve 1 and 64 sequences of a simulated stack (profile a100-70b, virtual time), so that they
decide and learn as in production; the clock times them alone. A verification may wait for `deciding`, and never for
`learning`, which happens while the target verifies.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Sequence
from time import perf_counter_ns

from report import Report, parser

from orchestrator.control.decision import Decision, Observation
from orchestrator.control.measurements import Measurements
from orchestrator.controller import Controller
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from pilotfish.config import SpeculationConfig
from pilotfish.planning.simulated_stack.controllers import ENDLESS
from pilotfish.planning.simulated_stack.sequence import SimulatedSequence
from pilotfish.planning.simulated_stack.stack import SimulatedStack
from pilotfish.profiles import load_profile
from pilotfish.types import SamplingParams

PROFILE = load_profile("a100-70b")
NUM_SEQUENCES = (1, 64)
ACCEPTANCES = (0.9, 0.3)
"""Of a draft token: drafts that pay, and drafts that do not."""
MAX_DRAFT_TOKENS = 8
WARM_UP = 1000
NUM_DECISIONS, QUICK_DECISIONS = 20_000, 2_000
ASKED_US = 100.0
"""Of a decision with its learning: what 64 sequences take together stays below a step of the target."""


class Times:
    """Nanoseconds of each decision, and of all that is learned up to the next one of the same request."""

    def __init__(self) -> None:
        self.deciding_ns: list[int] = []
        self.learning_ns: list[int] = []
        self.num_drafting = 0


class TimedController(Controller):
    """Tells its times."""

    def __init__(self, measurements: Measurements, times: Times) -> None:
        request = GenerationRequest(
            prompt_token_ids=(1,),
            sampling=SamplingParams(max_tokens=ENDLESS),
            speculation=SpeculationOptions(mode="auto"),
            num_speculative_tokens=MAX_DRAFT_TOKENS,
        )
        super().__init__(request, measurements, SpeculationConfig())
        self._times = times
        self._place = 0

    def next_k(self, observation: Observation) -> Decision:
        start_ns = perf_counter_ns()
        decision = super().next_k(observation)
        self._times.deciding_ns.append(perf_counter_ns() - start_ns)
        self._times.learning_ns.append(0)
        self._times.num_drafting += decision.num_draft_tokens > 0
        self._place = len(self._times.learning_ns) - 1
        return decision

    def note_draft(self, num_draft_tokens: int) -> None:
        start_ns = perf_counter_ns()
        super().note_draft(num_draft_tokens)
        self._times.learning_ns[self._place] += perf_counter_ns() - start_ns

    def catch_up(self) -> None:
        start_ns = perf_counter_ns()
        super().catch_up()
        self._times.learning_ns[self._place] += perf_counter_ns() - start_ns


def measure(num_sequences: int, acceptance: float, num_decisions: int) -> Times:
    """Until so many decisions are made after the warm-up, of all sequences together."""
    stack, measurements, times = SimulatedStack(PROFILE, acceptance), Measurements(), Times()
    for _ in range(num_sequences):
        SimulatedSequence(stack, TimedController(measurements, times))
    while len(times.deciding_ns) < WARM_UP + num_decisions:
        stack.world.run(stack.world.now_s + 1.0)
    return times


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__).parse_args(arguments)
    num_decisions = QUICK_DECISIONS if options.quick else NUM_DECISIONS
    report = Report(
        "What does a decision of the controller cost the orchestrator?",
        {"stack": f"SIMULATED {PROFILE.name}", "decisions": num_decisions, "draft tokens at most": MAX_DRAFT_TOKENS},
    )
    for acceptance, num_sequences in itertools.product(ACCEPTANCES, NUM_SEQUENCES):
        times = measure(num_sequences, acceptance, num_decisions)
        deciding, learning = (_us(each) for each in (times.deciding_ns, times.learning_ns))
        both = statistics.median(map(sum, zip(deciding, learning, strict=True)))
        report.row(
            sequences=num_sequences,
            acceptance=acceptance,
            drafting=times.num_drafting / len(times.deciding_ns),
            deciding_us=statistics.median(deciding),
            learning_us=statistics.median(learning),
            both_us=both,
        )
        name = f"deciding and learning, {num_sequences} sequences, acceptance {acceptance}"
        report.check(name, both, ASKED_US, "us")
    report.finish(options)
    return 0


def _us(times_ns: Sequence[int]) -> list[float]:
    return [time_ns / 1e3 for time_ns in times_ns[WARM_UP:]]


if __name__ == "__main__":
    sys.exit(main())
