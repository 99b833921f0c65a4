"""One step of vLLM as it crosses from vLLM's thread to the drafter's event loop, and its drafts on the way back."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from pilotfish.integrations.vllm.batch_rows import BatchStep


class DraftingStep:
    """Filled by the event loop until vLLM's thread stops to wait."""

    def __init__(self, batch: BatchStep) -> None:
        self.batch = batch
        self._drafts: list[list[int]] = [[] for _ in batch.rows]
        self._awaited: set[int] = set()
        self._lock = threading.Lock()
        self._is_over = False
        self._is_complete = threading.Event()

    def expect(self, slots: Sequence[int]) -> None:
        """The answers to these are worth waiting for: called once, when all that can be said at once was said."""
        with self._lock:
            self._awaited.update(slots)
            if not self._awaited:
                self._is_complete.set()

    def answer(self, slot: int, token_ids: Sequence[int]) -> bool:
        """The draft of a row, empty where none will come; False if it comes too late."""
        with self._lock:
            if self._is_over:
                return False
            self._drafts[slot] = list(token_ids)
            if slot in self._awaited:
                self._awaited.remove(slot)
                if not self._awaited:
                    self._is_complete.set()
            return True

    def wait(self, deadline_s: float) -> list[list[int]]:
        """What came before the deadline: a list for each row, empty where nothing did. It takes no more."""
        self._is_complete.wait(deadline_s)
        with self._lock:
            self._is_over = True
            return self._drafts

    @property
    def is_over(self) -> bool:
        """Whether it takes no more drafts."""
        return self._is_over

    @property
    def num_missing(self) -> int:
        """Rows that are waited for, and once it is over those that were waited for in vain."""
        return len(self._awaited)
