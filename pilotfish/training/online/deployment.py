"""The trainer as a Ray Serve deployment. Serve places, watches and replaces; nobody calls it."""

from __future__ import annotations

import threading

from pilotfish.config import Config
from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.training.online.service import run

_STOP_S = 5.0
"""Wait for the thread to notice that it is to stop; a candidate that is being trained is lost."""


class TrainerReplica:
    """Learns on a thread of its own, which alone has the lowest priority."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stop = threading.Event()
        self._problem = "the trainer has ended"
        self._thread = threading.Thread(target=self._run, name="trainer", daemon=True)
        self._thread.start()

    @property
    def is_learning(self) -> bool:
        return self._thread.is_alive()

    def check_health(self) -> None:
        """Called by Serve, which replaces the replica when this raises: UnavailableError, once nothing is learned any
        more."""
        if not self.is_learning:
            raise UnavailableError(self._problem)

    def shut_down(self) -> None:
        """Learn no more. Idempotent."""
        self._stop.set()
        self._thread.join(_STOP_S)

    def __del__(self) -> None:  # Serve's call before it ends a replica
        self.shut_down()

    def _run(self) -> None:
        try:
            run(self._config, self._stop)
        except PilotfishError as error:
            self._problem = str(error)
