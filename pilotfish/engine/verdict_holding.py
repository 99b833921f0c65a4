"""Which verdicts of plain steps wait for those that follow, so that fewer messages carry them.

Where an engine shares its cores with the services, a message takes from the steps what it costs: four processes read
and write it. A Decode says how long its tokens may wait. A token waits only for steps, never for a timer: it leaves
before a step that is expected to end too late. One that then takes longer than the step before did is the only thing
that can make a token wait beyond that. Pure: no I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pilotfish.messages import CloseSequence, Command, Decode, Event, SequenceError, Verdict, Verify, join_plain


@dataclass(slots=True)
class _Run:
    """A run of plain decoding whose tokens may wait."""

    goal_length: int
    last_quarter_length: int
    """Where its last quarter begins: who asked extends it then, before it ends."""
    next_told_length: int
    """Who asked hears at once that it has come so far: of its first token, then of its last quarter, then of its
    end."""
    max_delay_ns: int


class VerdictHolding:
    """Told what goes in and out of a target's engine, it says which events leave now."""

    def __init__(self) -> None:
        self._runs: dict[int, _Run] = {}
        self._held: list[Event] = []
        self._due_ns = 0
        """When the first that is held has waited for as long as it may."""

    def took(self, commands: Sequence[Command]) -> list[Event]:
        """Commands have arrived. Returns what was held and leaves now: the next step may take longer than the last."""
        for command in commands:
            if isinstance(command, Decode):
                self._begin(command)
            elif isinstance(command, CloseSequence | Verify):
                self._runs.pop(command.sequence_id, None)
        return self.release() if commands else []

    def gave(self, events: Sequence[Event], now_ns: int, next_step_ns: int) -> list[Event]:
        """A step has ended with these events. Returns all that leaves now.

        next_step_ns: what the next step is expected to take, or more than any delay where none follows.
        """
        leaves = False
        for event in events:
            if self._may_wait(event):
                due_ns = now_ns + self._runs[event.sequence_id].max_delay_ns
                self._due_ns = min(self._due_ns, due_ns) if self._held else due_ns
            else:
                leaves = True
            self._held.append(event)
        return self.release() if leaves or now_ns + next_step_ns > self._due_ns else []

    def release(self) -> list[Event]:
        """All that is held, the plain steps of each sequence as one."""
        events, self._held = self._held, []
        if len(events) < 2:
            return events
        parts: list[list[Event]] = []
        latest: dict[int, list[Event]] = {}
        for event in events:
            part = latest.get(event.sequence_id)
            if part is not None and _continues(event, part[-1]):
                part.append(event)
            else:
                part = latest[event.sequence_id] = [event]
                parts.append(part)
        return [_joined(part) for part in parts]

    def _begin(self, command: Decode) -> None:
        if not command.max_delay_ms:
            self._runs.pop(command.sequence_id, None)
            return
        goal_length = command.base_length + command.num_tokens
        last_quarter_length = goal_length - command.num_tokens // 4
        is_extension = command.sequence_id in self._runs
        self._runs[command.sequence_id] = _Run(
            goal_length,
            last_quarter_length,
            next_told_length=last_quarter_length if is_extension else command.base_length + 1,
            max_delay_ns=command.max_delay_ms * 1_000_000,
        )

    def _may_wait(self, event: Event) -> bool:
        run = self._runs.get(event.sequence_id)
        if run is None:
            return False
        if not isinstance(event, Verdict):
            if isinstance(event, SequenceError):
                del self._runs[event.sequence_id]
            return False
        length = event.base_length + len(event.token_ids)
        if length >= run.goal_length or event.finish_reason is not None:
            del self._runs[event.sequence_id]
            return False
        if length >= run.next_told_length:
            is_early = length < run.last_quarter_length
            run.next_told_length = run.last_quarter_length if is_early else run.goal_length
            return False
        return not event.num_draft_tokens and event.features is None


def _continues(event: Event, earlier: Event) -> bool:
    return isinstance(event, Verdict) and isinstance(earlier, Verdict) and event.continues_plainly(earlier)


def _joined(events: list[Event]) -> Event:
    verdicts = [event for event in events if isinstance(event, Verdict)]
    return events[0] if len(events) == 1 else join_plain(verdicts)
