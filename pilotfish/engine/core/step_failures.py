"""What breaks a step costs that step's sequences, and not the replica."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from pilotfish.engine.core.sequence import EngineSequence
from pilotfish.messages import Event, SequenceError
from pilotfish.types import SequenceErrorCode

logger = logging.getLogger(__name__)

MAX_FAILED_STEPS = 10
"""So many in a row are the replica's fault, not a request's: the engine ends."""


class StepFailures:
    """Counts the steps that failed in a row."""

    def __init__(self, forget: Callable[[EngineSequence], None]) -> None:
        """forget: releases what a sequence holds that may have ended already."""
        self._forget = forget
        self._num_failed = 0

    def end(self) -> None:
        """A step went well."""
        self._num_failed = 0

    def take(self, sequences: Sequence[EngineSequence], error: Exception) -> list[Event]:
        """A step of these sequences failed, in computing or after it: none of its results is told, as nobody knows how
        far each of them has come. Raises the error when steps keep failing."""
        self._num_failed += 1
        if self._num_failed >= MAX_FAILED_STEPS:
            raise error
        logger.error("a step of %d sequences failed", len(sequences), exc_info=error)
        message = f"the engine failed in a step of this sequence: {type(error).__name__}"
        for sequence in sequences:
            self._forget(sequence)
        return [SequenceError(sequence.sequence_id, SequenceErrorCode.INTERNAL, message) for sequence in sequences]
