"""Has a head follow the version that serves: new weights are made ready on a thread, and taken up between two steps.

Texts stay as they are, since the target verifies every draft; in rejection mode against the distributions that came
with the draft, which are those that it was drawn from. So sequences under way go on, and cached prefixes stay, with
keys and values that another version has written: a version is trained from one before it, and drafts behind such
prefixes are accepted as often as behind its own. To compute them again would cost every cached text a prefill at each
swap.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable

_POLL_S = 1.0
"""A promotion counts after a second at most."""
_RETRY_S = 60.0
"""Until a version that could not be taken is tried again: it may have been mended."""

logger = logging.getLogger(__name__)

Exchange = Callable[[], None]
"""Puts prepared weights in the place of a head's own. Call it between two forwards."""


class HeadVersions:
    """See the module. `take` is the engine's thread's, all else that of the watch. Close it."""

    def __init__(
        self,
        serving: Callable[[], int],
        prepare: Callable[[int], Exchange],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """serving: the version that serves; 0: the configured head, which the engine begins with. prepare: makes ready
        to go on with a version; raises for one that cannot be taken. Both are called on the watch's thread. clock:
        seconds.

        Takes up the version that serves now.
        """
        self.version = 0
        """What the head drafts with."""
        self._serving = serving
        self._prepare = prepare
        self._wanted = 0
        """The version that was looked at last."""
        self._retry_at = math.inf
        self._clock = clock
        self._ready: deque[tuple[int, Exchange]] = deque(maxlen=1)
        self._is_over = threading.Event()
        self._has_looked = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="head versions", daemon=True)
        self._thread.start()
        self._has_looked.wait()
        self.take()

    def take(self) -> bool:
        """Between two steps: go on with the version that was made ready, if there is one. Returns whether."""
        if not self._ready:
            return False
        number, exchange = self._ready.popleft()
        exchange()
        logger.info("the head drafts with version %d from now on, before it was %d", number, self.version)
        self.version = number
        return True

    def look(self) -> None:
        """Make the version ready that serves, if it is another than before. One that cannot be taken is refused, and
        tried again after a while."""
        number = self._serving()
        is_new = number != self._wanted
        if not is_new and self._clock() < self._retry_at:
            return
        self._wanted = number
        self._retry_at = math.inf
        try:
            self._ready.append((number, self._prepare(number)))
        except Exception as error:
            # Whatever is wrong with it, the head that drafts now goes on.
            self._retry_at = self._clock() + _RETRY_S
            if is_new:
                logger.error(
                    "version %d of the head is not taken, version %d goes on: %s. Let another serve: "
                    "`pilotfish drafter rollback`, or `pilotfish drafter promote`",
                    number,
                    self.version,
                    error,
                )

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            self.look()
        finally:
            self._has_looked.set()
        while not self._is_over.wait(_POLL_S):
            self.look()
