"""What a check says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How well a thing is."""

    OK = "ok"
    WARNING = "warning"
    """Works, but slower or otherwise than one may expect."""
    PROBLEM = "problem"
    """Something that is configured will not work."""


@dataclass(frozen=True)
class CheckFinding:
    """One thing that was looked at."""

    check: str
    """What was looked at, in a word or two."""
    verdict: Severity
    found: str
    advice: str = ""
    """What to do; empty where there is nothing to do."""


def worst(findings: Iterable[CheckFinding]) -> Severity:
    """The verdict on the whole."""
    verdicts = {finding.verdict for finding in findings}
    return next(
        (verdict for verdict in (Severity.PROBLEM, Severity.WARNING) if verdict in verdicts),
        Severity.OK,
    )
