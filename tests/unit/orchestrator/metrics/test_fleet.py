"""The target pool as one engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.metrics.fleet import PreemptionCount
from pilotfish.types import LoadReport


@dataclass
class Link:
    replica_id: str
    load: LoadReport = field(default_factory=LoadReport)


def test_preemptions_never_become_fewer() -> None:
    count = PreemptionCount()

    def after(**replicas: int) -> int:
        count.update([Link(name, LoadReport(num_preemptions=number)) for name, number in replicas.items()])
        return count.total

    assert after(a=100) == 0, "what was before this orchestrator came is not its to tell"
    assert after(a=103, b=5) == 3
    assert after(a=104, b=7) == 6
    assert after(b=7) == 6, "a left"
    assert after(b=1) == 6, "b was restarted"
    assert after(b=2) == 7
