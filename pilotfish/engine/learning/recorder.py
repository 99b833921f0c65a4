"""Keeps verified texts for the head that learns from them, off the path of a step.

A step hands over what it has computed and goes on. Once an answer has come to its end, or much has gathered, a thread
of the recorder's own encodes all of it at once, puts each sequence's pieces together, and writes the texts that ended:
woken at each step it would take a core from the next one. What is more than the thread can follow is dropped, and
leaves a gap in a text. Torch-free.

Legend: T tokens, F captured layers, H hidden size.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from pilotfish.engine.learning.beginnings import Beginnings
from pilotfish.engine.learning.recording import Recording
from pilotfish.features import Features
from pilotfish.learning.record import LearnedText
from pilotfish.messages import CloseSequence, OpenSequence

_MAX_WAITING_BYTES = 64 << 20
"""Features that wait for the thread: some steps' of long prompts."""
_GATHERED_BYTES = 8 << 20
"""Features that gather before the thread is woken."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive tokens of one sequence that a step has computed."""

    recording: Recording
    first_position: int
    token_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class _Computed:
    pieces: Sequence[Piece]
    values: Any
    """Tensor [T, F * H], of the pieces' tokens one after the other."""


@dataclass(frozen=True, slots=True)
class _Sent:
    piece: Piece
    features: Features


@dataclass(frozen=True, slots=True)
class _Gathered:
    items: Sequence[_Computed | _Sent]
    num_bytes: int


@dataclass(frozen=True, slots=True)
class _Ended:
    recording: Recording
    is_finished: bool
    at: float


class Recorder:
    """See the module. One per engine, whose thread calls it; close it."""

    def __init__(
        self, keep: Callable[[LearnedText], None], encode: Callable[[Sequence[Any]], Features], *, max_bytes: int
    ) -> None:
        """keep: takes texts that came to their end, on the recorder's thread, as encode is called: Features of tensors
        [T, F * H], one below the other, as if of the positions from 0 on. max_bytes: features that open sequences hold
        together."""
        self._keep = keep
        self._encode = encode
        self._max_bytes = max_bytes
        self._open: dict[int, Recording] = {}
        self._beginnings = Beginnings()
        self._gathered: list[_Computed | _Sent] = []
        self._num_gathered_bytes = 0
        self._inbox: SimpleQueue[_Gathered | _Ended | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._num_waiting_bytes = 0
        self._num_held_bytes = 0
        self._has_warned = self._has_dropped = False
        self._thread = threading.Thread(target=self._run, name="text recorder", daemon=True)
        self._thread.start()

    def open(self, command: OpenSequence) -> Recording:
        """A sequence begins of which text may be kept."""
        recording = self._open[command.sequence_id] = Recording(command)
        return recording

    def add(self, pieces: Sequence[Piece], values: Any) -> None:
        """What a step has computed. values: tensor [T, F * H] of the pieces' tokens, nobody else's to
        change."""
        self._gather(_Computed(pieces, values), values.nbytes)

    def add_features(self, piece: Piece, features: Features) -> None:
        """Features that a peer has sent, of the piece's tokens; what is more of either is left out."""
        self._gather(_Sent(piece, features), len(features.data))

    def close(self, command: CloseSequence) -> None:
        """The text is kept if the answer came to its end, else nothing of it is."""
        recording = self._open.pop(command.sequence_id, None)
        if recording is not None:
            self._hand_over()
            self._inbox.put(_Ended(recording, command.is_finished, time.time()))

    def end(self) -> None:
        """Write what has come to its end, and stop."""
        self._hand_over()
        self._inbox.put(None)
        self._thread.join()

    def _gather(self, item: _Computed | _Sent, num_bytes: int) -> None:
        with self._lock:
            has_room = self._num_waiting_bytes + num_bytes <= _MAX_WAITING_BYTES
            self._num_waiting_bytes += num_bytes if has_room else 0
        if has_room:
            self._gathered.append(item)
            self._num_gathered_bytes += num_bytes
            if self._num_gathered_bytes >= _GATHERED_BYTES:
                self._hand_over()
        elif not self._has_dropped:
            self._has_dropped = True
            logger.warning("texts come faster than they are kept to learn from: some lose their beginning or their end")

    def _hand_over(self) -> None:
        if self._gathered:
            self._inbox.put(_Gathered(self._gathered, self._num_gathered_bytes))
            self._gathered = []
            self._num_gathered_bytes = 0

    def _run(self) -> None:
        while (item := self._inbox.get()) is not None:
            try:
                self._take(item)
            except Exception:
                # A text that is lost is no reason to lose those after it.
                if not self._has_warned:
                    logger.exception("a text is not kept to learn from; answers are not affected")
                self._has_warned = True

    def _take(self, item: _Gathered | _Ended) -> None:
        match item:
            case _Gathered(items, num_bytes):
                with self._lock:
                    self._num_waiting_bytes -= num_bytes
                self._take_in(items)
            case _Ended(recording, is_finished, at):
                self._num_held_bytes -= recording.num_bytes
                text = recording.text(at) if is_finished else None
                if text is not None:
                    self._keep(self._beginnings.complete(text, recording.prompt))

    def _take_in(self, items: Sequence[_Computed | _Sent]) -> None:
        values = [item.values for item in items if isinstance(item, _Computed)]
        computed = self._encode(values) if values else None
        first = 0
        for item in items:
            if isinstance(item, _Sent):
                self._add(item.piece, item.features)
                continue
            assert computed is not None, "values are encoded"
            for piece in item.pieces:
                own = computed.between(first, first + len(piece.token_ids))
                first += len(piece.token_ids)
                self._add(piece, Features(piece.first_position, own.num_tokens, own.data))

    def _add(self, piece: Piece, features: Features) -> None:
        recording = piece.recording
        if self._num_held_bytes + len(features.data) > self._max_bytes:
            return
        self._num_held_bytes -= recording.num_bytes
        recording.add(piece.token_ids, features)
        self._num_held_bytes += recording.num_bytes
