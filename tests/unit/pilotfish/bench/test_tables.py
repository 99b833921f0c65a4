"""The report on a terminal of eighty columns."""

import io

import msgspec
from rich.console import Console

from pilotfish.bench.machine import this_machine
from pilotfish.bench.metrics import DraftMetrics, Row
from pilotfish.bench.result import Result
from pilotfish.bench.tables import show
from pilotfish.bench.verdicts import Verdict

DRAFTS = DraftMetrics(
    acceptance_rate=0.51,
    mean_acceptance_length=3.25,
    tokens_per_step=3.1,
    num_draft_tokens=12345,
    num_accepted_tokens=6789,
    num_wasted_tokens=5556,
    num_missed_deadlines=0,
    acceptance_per_position=(0.9,),
)
PLAIN = Row(
    arm="plain",
    category="q[a]",
    num_answers=4,
    num_timed=3,
    num_tokens=400,
    tokens_per_s=123.4,
    decode_tokens_per_s=150.0,
    speed_up=1.0,
    speed_up_median=1.0,
    speed_up_bound=None,
    total_speed_up=1.0,
    ttft_ms=1234.0,
    itl_p50_ms=10.5,
    itl_p99_ms=100.25,
    drafts=None,
    num_identical=4,
)
FAST = msgspec.structs.replace(PLAIN, arm="model auto", speed_up=1.75, drafts=DRAFTS, num_identical=3)


def shown(*rows: Row, sentence: str = "q[a]: fine") -> list[str]:
    verdict = Verdict(
        category="q[a]",
        conclusion="pays",
        arm="model auto",
        proposer="model",
        num_speculative_tokens=None,
        speed_up=1.75,
        sentence=sentence,
    )
    result = Result(
        date="",
        machine=this_machine(),
        conditions={"model": "m[x]"},
        rows=list(rows),
        verdicts=[verdict],
        baseline="plain",
    )
    console = Console(file=io.StringIO(), width=80)
    show(result, console)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_every_figure_is_whole_in_eighty_columns() -> None:
    lines = shown(PLAIN, FAST)
    plain = next(line for line in lines if line.startswith("plain"))
    fast = next(line for line in lines if line.startswith("model auto"))
    assert plain.split() == ["plain", "123.4", "1.00x", "1234", "10.5", "100.2", "-", "-", "-", "-", "yes"]
    assert fast.split()[7:] == ["51%", "3.25", "12345", "5556", "no:", "3/4"]
    assert all(len(line) <= 80 for line in lines)


def test_names_from_outside_are_no_markup_and_the_verdict_comes_last() -> None:
    lines = shown(PLAIN)
    assert lines[0] == "model m[x]"
    assert lines[1].strip() == "q[a]: 3 of 4 answers long enough to time"
    assert lines[-1] == "q[a]: fine"
