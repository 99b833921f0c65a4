"""One step of vLLM as it crosses from vLLM's thread to the drafter's event loop, and its drafts on the way back."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilotfish.integrations.vllm.batch_rows import BatchStep

_BACKGROUND_S = 0.005
"""Python's interpreter lets the other thread run after so long: an answer that vLLM's thread does not wait for is
noticed so much later."""


@dataclass(frozen=True, slots=True)
class ToldBatch:
    """What a step of vLLM committed."""

    batch: BatchStep
    num_verified: Mapping[int, int]
    """Of the drafts of the step before it: the tokens that vLLM was given, by row id; of others all."""


class DraftingStep:
    """Filled by one thread until the other one stops to wait."""

    def __init__(
        self,
        batch: BatchStep,
        num_draft_tokens: int,
        deadline_s: float,
        *,
        is_waited_for: bool = True,
        is_shadow: bool = False,
        num_verified: Mapping[int, int] | None = None,
        untold: Sequence[ToldBatch] = (),
    ) -> None:
        """num_draft_tokens: wanted for each row that decodes; 0: the drafter is only told of the tokens.

        deadline_s: how long it is waited for. is_waited_for: False for a probe, of which only the time is wanted, and
        for a shadow (is_shadow), whose drafts are compared with what comes. num_verified: of the drafts of the step
        before, the tokens that vLLM was given, by row id; of others all. untold: steps before this one that the drafter
        was not told of, as they asked for nothing.
        """
        self.batch = batch
        self.num_draft_tokens = num_draft_tokens
        self.deadline_s = deadline_s
        self.is_waited_for = is_waited_for
        self.is_shadow = is_shadow
        self.told = (*untold, ToldBatch(batch, num_verified or {}))
        """What the drafter is told of, in order."""
        self.is_missed = False
        """Whether it was waited for in vain, if only for one of the answers."""
        self._begun_s = time.perf_counter()
        self._answered_s: float | None = None
        self._drafts: list[list[int]] = [[] for _ in batch.rows]
        self._awaited: set[int] = set()
        """Slots whose answers are worth waiting for."""
        self._lock = threading.Lock()
        self._is_over = not is_waited_for
        self._is_complete = threading.Event()

    def expect(self, slots: Sequence[int]) -> None:
        """These are waited for: called once, when all that can be said at once was said."""
        with self._lock:
            self._awaited.update(slots)
            if not self._awaited:
                self._is_complete.set()

    def answer(self, slot: int, token_ids: Sequence[int]) -> bool:
        """The draft of a row; False if it comes too late."""
        with self._lock:
            is_in_time = not self._is_over
            if is_in_time:
                self._drafts[slot] = list(token_ids)
            if slot in self._awaited and (is_in_time or not self.is_waited_for):
                self._answered_s = time.perf_counter()
                self._leave_out(slot)
            return is_in_time

    def release(self, slot: int) -> None:
        """The row will have no answer: nobody need wait for it."""
        with self._lock:
            if slot in self._awaited and not (self._is_over and self.is_waited_for):
                self._leave_out(slot)

    def wait(self) -> list[list[int]]:
        """What came before the deadline: a list for each row, empty where nothing did."""
        self.is_missed = not self._is_complete.wait(self.deadline_s)
        with self._lock:
            self._is_over = True
            return self._drafts

    @property
    def num_missing(self) -> int:
        """Rows that were waited for in vain."""
        return len(self._awaited)

    @property
    def is_complete(self) -> bool:
        """Whether nothing more will come."""
        return self._is_complete.is_set()

    def was_in_time(self, now_s: float) -> bool | None:
        """Of a probe, at now_s (time.perf_counter): whether all answers came before the deadline that they would have
        had. None: that is not known, or not yet."""
        limit_s = self._begun_s + self.deadline_s + _BACKGROUND_S
        if not self.is_complete:
            return False if now_s > limit_s else None
        return None if self._answered_s is None else self._answered_s <= limit_s

    def _leave_out(self, slot: int) -> None:
        self._awaited.discard(slot)
        if not self._awaited:
            self._is_complete.set()
