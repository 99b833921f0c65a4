"""The verdict on the whole is the worst one."""

import pytest

from pilotfish.cli.checks.finding import Finding, Verdict, worst


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [("", "ok"), ("ok", "ok"), ("ok warning", "warning"), ("warning problem ok", "problem")],
)
def test_the_worst_counts(verdicts: str, whole: str) -> None:
    assert worst(Finding("it", Verdict(verdict), "") for verdict in verdicts.split()) == whole
