"""A draft engine whose answers a test reads."""

from pilotfish.config import Config
from pilotfish.engine.process.factory import build_engine
from pilotfish.messages import Event, Proposal
from tests.support.threaded_engine import ThreadedEngine


def recorded_drafter(config: Config, proposals: list[Proposal]) -> ThreadedEngine:
    """proposals: gets all that the drafter answers."""
    core = build_engine(config, "draft")
    step = core.step

    def recorded(max_rows: int | None = None) -> list[Event]:
        events = step(max_rows)
        proposals.extend(event for event in events if isinstance(event, Proposal))
        return events

    core.step = recorded  # type: ignore[method-assign]
    return ThreadedEngine(core)
