"""Running an engine's core to the end of its work, and what its events say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pilotfish.engine.core.engine import Engine
from pilotfish.engine.core.engine_core import EngineCore
from pilotfish.messages import Event, SequenceError, Verdict

MakeCore = Callable[..., EngineCore]
GreedyText = Callable[[Sequence[int], int], list[int]]
"""A greedy continuation of a text, of so many tokens."""


def settle(core: Engine) -> list[Event]:
    """Step until nothing is left to do; all events."""
    events: list[Event] = []
    for _ in range(3000):
        if not core.has_work:
            return events
        events.extend(core.step())
    raise AssertionError("the engine does not come to rest")


def verdicts_of(events: Sequence[Event], sequence_id: int | None = None) -> list[Verdict]:
    """Of one sequence, or of all."""
    verdicts = (event for event in events if isinstance(event, Verdict))
    return [verdict for verdict in verdicts if sequence_id in (None, verdict.sequence_id)]


def text_of(events: Sequence[Event], sequence_id: int = 1) -> list[int]:
    """What was decided for a sequence."""
    return [token_id for verdict in verdicts_of(events, sequence_id) for token_id in verdict.token_ids]


def errors_of(events: Sequence[Event]) -> list[SequenceError]:
    return [event for event in events if isinstance(event, SequenceError)]
