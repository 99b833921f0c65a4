"""The target pool as one engine."""

from dataclasses import dataclass

from orchestrator.metrics.fleet import FleetCounters
from pilotfish.types import LoadReport


@dataclass
class Link:
    replica_id: str
    load: LoadReport


def test_what_replicas_count_never_becomes_less() -> None:
    counters = FleetCounters()

    def after(**replicas: int) -> int:
        loads = {
            name: LoadReport(num_preemptions=number, num_steps=10 * number, num_kv_blocks_total=8)
            if number
            else LoadReport()
            for name, number in replicas.items()
        }
        counters.update([Link(name, load) for name, load in loads.items()])  # type: ignore[list-item]
        assert counters.num_steps == 10 * counters.num_preemptions
        return counters.num_preemptions

    assert after(a=100) == 0, "what was before this orchestrator came is not its to tell"
    assert after(a=103, b=5) == 3
    assert after(a=104, b=7) == 6
    assert after(a=0, b=7) == 6, "a is away"
    assert after(a=105, b=7) == 7, "a is back"
    assert after(b=7) == 7, "a left"
    assert after(b=1) == 7, "b was restarted"
    assert after(b=2) == 8
