"""Carries a machine's commands to the replicas, and has its events."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, cast

import msgspec

from orchestrator.replicas.mailbox import ANSWER_DEADLINE_S, Link, Mailbox
from orchestrator.rounds.commands import (
    Acquire,
    Acquired,
    Alarm,
    Arrived,
    Close,
    Command,
    Event,
    NotAcquired,
    Open,
    Report,
    Send,
    Wake,
    Woken,
)
from orchestrator.rounds.peer import Peer
from pilotfish.errors import DeadlineExceededError, PilotfishError
from pilotfish.messages import Verdict, join_plain


class TargetPool(Protocol):
    """The part of a target pool that a request needs."""

    def pick(self, avoid: Collection[str] = ()) -> Link | None: ...

    async def acquire(
        self,
        timeout_s: float,
        avoid: Collection[str] = (),
        *,
        token_ids: Sequence[int] = (),
        is_continued: bool = False,
        preferred: str = "",
    ) -> Link: ...

    def remember(self, link: Link, token_ids: Sequence[int]) -> None: ...


class ReplicaExchange:
    """One per request, on its event loop. Close it: every mailbox that it opens is freed then."""

    def __init__(
        self,
        targets: TargetPool | None,
        *,
        acquire_timeout_s: float,
        max_unread: int,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        """targets: the pool to acquire from; None: no target is asked for. max_unread: messages of a replica that may
        wait; more mean that it is broken. on_event: gets events at once; None: they wait for `next`."""
        self._targets = targets
        self._acquire_timeout_s = acquire_timeout_s
        self._max_unread = max_unread
        self._on_event = on_event
        self._events: deque[Event] = deque()
        self._arrival: asyncio.Future[None] | None = None
        """Done when an event has come; `next` waits for it."""
        self._waits_since_s = 0.0
        self._num_idle_tokens = 0
        """Tokens of plain steps that may come before `next` returns."""
        self._mailboxes: dict[Peer, Mailbox] = {}
        self._acquire: Acquire | None = None
        self._target: Link | None = None
        """The target replica that was acquired last."""
        self._timers: dict[Alarm, asyncio.TimerHandle] = {}

    def run(self, commands: Iterable[Command]) -> None:
        """Carry them out, in order. What fails becomes an event."""
        for command in commands:
            match command:
                case Send():
                    mailbox = self._mailboxes.get(command.peer)
                    if mailbox is not None:  # else it failed, and was closed, a command ago
                        mailbox.send(command.message, is_optional=command.is_optional)
                case Open():
                    mailbox = self._mailboxes[command.peer] = Mailbox(command.peer, self, self._max_unread)
                    mailbox.send(command.message)
                case Close():
                    self._close(command)
                case Report():
                    _report(command)
                case Acquire():
                    self._acquire = command
                case Wake():
                    self._set_timer(command)

    async def next(self, num_idle_tokens: int = 0) -> Event:
        """The next event; plain steps that wait together are one. Cancelling loses nothing.

        num_idle_tokens: tokens of plain steps for which nobody waits: they stay until more, something else, or `hurry`.
        """
        acquire = self._acquire
        if acquire is not None:
            assert self._targets is not None
            try:
                self._target = await self._targets.acquire(
                    self._acquire_timeout_s,
                    acquire.avoid,
                    token_ids=acquire.token_ids,
                    is_continued=acquire.is_continued,
                    preferred=acquire.preferred,
                )
            except PilotfishError as error:
                self._acquire = None
                return NotAcquired(error)
            self._acquire = None
            return Acquired(self._target)
        while not self._events:
            self._num_idle_tokens = num_idle_tokens
            self._arrival = asyncio.get_running_loop().create_future()
            self._waits_since_s = time.monotonic()
            await self._arrival
        event = self._events.popleft()
        self._read(event)
        if self._events and isinstance(event, Arrived) and isinstance(event.message, Verdict):
            return self._with_plain_steps_after(event)
        return event

    def post(self, event: Event) -> None:
        """Called by mailboxes and timers."""
        if self._on_event is not None:
            self._read(event)
            self._on_event(event)
            return
        self._events.append(event)
        if self._num_idle_tokens > 0 and isinstance(event, Arrived) and isinstance(event.message, Verdict):
            verdict = event.message
            is_plain = verdict.num_draft_tokens == 0 and verdict.finish_reason is None
            self._num_idle_tokens -= len(verdict.token_ids) if is_plain else self._num_idle_tokens
            if self._num_idle_tokens > 0:
                return
        self.hurry()

    @property
    def has_verdicts(self) -> bool:
        """Whether tokens have come that `next` has not returned."""
        return any(isinstance(event, Arrived) and isinstance(event.message, Verdict) for event in self._events)

    def hurry(self) -> None:
        """Let `next` return what has come, as soon as anything has."""
        self._num_idle_tokens = 0
        if self._events and self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def fail_if_overdue(self, mailbox: Mailbox) -> None:
        """Called every few seconds: cheaper than a timer for each event."""
        if self._targets is not None and mailbox.link is not self._target:
            return  # drafts have deadlines of their own
        is_waiting = self._arrival is not None and not self._arrival.done() and not self._events
        if is_waiting and time.monotonic() - self._waits_since_s > ANSWER_DEADLINE_S:
            replica_id = mailbox.peer.replica.replica_id
            mailbox.fail(DeadlineExceededError(f"replica {replica_id} sent nothing for {ANSWER_DEADLINE_S:.0f} s"))

    def close(self) -> None:
        """Free what replicas hold. Idempotent."""
        for mailbox in self._mailboxes.values():
            mailbox.close()
        self._mailboxes.clear()
        for timer in self._timers.values():
            timer.cancel()

    def _read(self, event: Event) -> None:
        if isinstance(event, Arrived) and (mailbox := self._mailboxes.get(event.peer)) is not None:
            mailbox.num_unread -= 1

    def _close(self, command: Close) -> None:
        mailbox = self._mailboxes.pop(command.peer, None)
        if mailbox is None:
            return
        if command.cached_token_ids and self._targets is not None and mailbox.is_usable:
            self._targets.remember(mailbox.link, command.cached_token_ids)
        mailbox.close(is_finished=command.is_finished)

    def _set_timer(self, wake: Wake) -> None:
        if wake.alarm in self._timers:
            self._timers[wake.alarm].cancel()
        delay_s, woken = max(0.0, wake.at_s - time.monotonic()), Woken(wake.at_s, wake.alarm)
        self._timers[wake.alarm] = asyncio.get_running_loop().call_later(delay_s, self.post, woken)

    def _with_plain_steps_after(self, first: Arrived) -> Arrived:
        assert isinstance(first.message, Verdict)
        last, verdicts = first, [first.message]
        while self._events:
            following = self._events[0]
            if (
                not isinstance(following, Arrived)
                or following.peer is not first.peer
                or not isinstance(following.message, Verdict)
                or not following.message.continues_plainly(verdicts[-1])
            ):
                break
            last = following
            verdicts.append(following.message)
            self._read(self._events.popleft())
        if last is first:
            return first
        return msgspec.structs.replace(last, message=join_plain(verdicts))


def _report(report: Report) -> None:
    link = cast("Link", report.replica)  # those of a pool are links
    match report.service:
        case "success":
            link.report_success()
        case "failure":
            link.report_failure(report.reason)
        case "full":
            link.report_full()
        case "draining":
            link.report_draining()
