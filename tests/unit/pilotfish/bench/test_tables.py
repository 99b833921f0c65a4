"""What a terminal shows of every arm."""

import io

from rich.console import Console

from pilotfish.bench.arms import PLAIN, Variant
from pilotfish.bench.machine import this_machine
from pilotfish.bench.measurement import Arrival, Measurement
from pilotfish.bench.metrics import rows_of
from pilotfish.bench.quality import Quality
from pilotfish.bench.result import Result
from pilotfish.bench.runner import Sample
from pilotfish.bench.tables import show
from pilotfish.bench.verdicts import arm_verdicts_of

STEPS = Variant("model", 5, "step")


def shown(*, right: bool | None, qualities: dict[str, Quality]) -> dict[str, str]:
    """Lines of the table of every arm by their first word."""
    plain, fast = ((Arrival(1.0, 1), Arrival(end_s, 20)) for end_s in (21.0, 11.0))
    samples = [
        Sample(arm, "math", 0, turn, Measurement(token_ids=(1,) * 21, arrivals=arrivals), right and arm == PLAIN)
        for arm, arrivals in ((PLAIN, plain), (STEPS.name, fast))
        for turn in range(2)
    ]
    rows = rows_of(samples, PLAIN)
    verdicts = arm_verdicts_of(rows, {STEPS.name: STEPS}, must_be_identical=True)
    result = Result(
        date="",
        machine=this_machine(),
        conditions={},
        rows=rows,
        verdicts=[],
        arm_verdicts=verdicts,
        qualities=qualities,
        baseline=PLAIN,
    )
    output = io.StringIO()
    show(result, Console(file=output, width=80))
    lines = output.getvalue().partition("every arm")[2].splitlines()
    assert all(len(line) <= 80 for line in lines)
    return {line.split()[0]: " ".join(line.split()) for line in lines if line.strip()}


def test_quality_and_verdict_stand_beside_the_speed() -> None:
    lines = shown(right=True, qualities={STEPS.name: Quality(mean_logprob=-0.5, other_tokens=0.25)})
    assert lines["plain"] == "plain 1.00x 100% - - -"
    assert lines["model"] == "model K=5 step 2.00x 0% -0.50 25% pays"


def test_what_no_arm_has_is_left_out() -> None:
    lines = shown(right=None, qualities={})
    assert lines["plain"] == "plain 1.00x -"
    assert lines["model"] == "model K=5 step 2.00x pays"
