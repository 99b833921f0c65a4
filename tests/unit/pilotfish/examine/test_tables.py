"""An examination as it is printed."""

import io

import pytest
from rich.console import Console

from pilotfish.examine.acceptance import Acceptance
from pilotfish.examine.prediction import Speed, advise
from pilotfish.examine.result import DrafterResult, Examination, Finding
from pilotfish.examine.tables import show
from pilotfish.step_table import StepTable

CHAINS, TREES = (100.0, 150.0, 170.0), (100.0, 160.0, 200.0)
ACCEPTANCE = Acceptance(4, 200, (0.6, 0.5), (1.0, 1.6, 1.9), (0.0, 1.0, 2.0), 0.65)


def shown(
    speeds: list[Speed],
    findings: tuple[Finding, ...] = (),
    *,
    width: int = 160,
    is_recent: bool = False,
    shares_processors: bool = False,
) -> str:
    result = DrafterResult(
        name="eagle3",
        model="head",
        overall=ACCEPTANCE,
        greedy=None if is_recent else ACCEPTANCE,
        sampled=None,
        by_category={"chat": ACCEPTANCE},
        speeds=speeds,
        steps=StepTable((1,), (8_000_000,)),
        findings=findings,
        shares_processors=shares_processors,
    )
    examination = Examination(
        target="target",
        machine="a machine",
        num_answers=4,
        num_tokens=204,
        temperature=0.0,
        took_s=3.0,
        plain_tokens_per_s={1: 100.0},
        drafters=[result],
        advice=advise({"eagle3": speeds}),
        is_recent=is_recent,
    )
    console = Console(file=io.StringIO(), width=width, color_system=None)
    show(examination, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_chains_and_trees_have_a_curve_each_on_one_scale() -> None:
    speed = Speed(1, 2, 2.0, 200.0, 2.0, CHAINS, TREES, is_tree=True)
    lines = shown([speed]).splitlines()
    chains, trees = (next(line for line in lines if kind in line) for kind in ("chains", "trees"))
    assert all(part in chains for part in ("100", "150", "170", "▁▅▆"))
    assert all(part in trees for part in ("160", "200", "▁▅█", "K = 2", "2.00x"))
    assert "2.00x" not in chains
    assert "K = 2 at 1 requests" in lines[-1]


@pytest.mark.parametrize("trees", [(), CHAINS])
def test_trees_that_are_chains_have_no_row(trees: tuple[float, ...]) -> None:
    text = shown([Speed(4, 0, 1.0, 100.0, 1.0, (100.0, 100.0), trees and (100.0, 100.0))])
    assert "trees" not in text
    assert "decode plainly" in text
    assert "▁▁" in text


def test_a_head_elsewhere_has_a_row_of_its_own() -> None:
    speed = Speed(1, 2, 2.0, 200.0, 2.0, CHAINS, TREES, is_tree=True, by_remote_draft_tokens=(100.0, 111.0, 122.0))
    (remote,) = (line for line in shown([speed]).splitlines() if "remote" in line)
    assert remote.split() == ["remote", "111", "122"]


def test_shared_processors_are_told_with_what_to_do() -> None:
    speed = Speed(1, 2, 1.9, 170.0, 1.7, CHAINS)
    assert "times of both are added" in (told := shown([speed], shares_processors=True))
    assert "--set 'orchestrator.draft_addresses=[\"HOST:PORT\"]'" in told
    assert "draft_addresses" not in shown([speed])


def test_recent_requests_are_told_as_such() -> None:
    text = shown([Speed(1, 2, 1.9, 170.0, 1.7, CHAINS)], is_recent=True)
    assert "4 answers of recent requests, 204 tokens" in text
    assert "greedy" not in text


def test_every_figure_is_there_in_80_columns() -> None:
    """The curves are not."""
    chains, trees = (tuple(first + at for at in range(9)) for first in (3584.0, 6784.0))
    text = shown([Speed(64, 8, 2.0, 6792.0, 1.89, chains, trees, is_tree=True)], width=80)
    assert all(f"{rate:.0f}" in text for rate in (*chains, *trees[1:]))
    assert all(word in text for word in ("requests", "K = 8", "speed-up", "1.89x"))
    assert "…" not in text
    assert "▁" not in text


def test_findings_are_told() -> None:
    speed = Speed(1, 2, 1.9, 170.0, 1.7, CHAINS)
    assert "No fault found." in shown([speed])
    assert "too hot: evidence. Cool it" in shown([speed], (Finding("too hot", "evidence", "Cool it"),))
