"""The connection to one replica: kept alive, checked, and shared by its sequences."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from orchestrator.replicas.circuit import Circuit, CircuitState, SilenceWatch
from orchestrator.replicas.mailbox import Receiver
from pilotfish.errors import HandshakeError, InternalError, PilotfishError, UnavailableError
from pilotfish.messages import Command, Event
from pilotfish.rpc.stream import MuxStream
from pilotfish.step_table import StepTable
from pilotfish.types import Limits, LoadReport, ModelInfo

_log = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.1
_MAX_BACKOFF_S = 2.0
"""A replica that is back serves again after this long at the latest; a dial that fails costs next to nothing."""
_MISMATCH_BACKOFF_S = 15.0
"""A replica with another model stays that way until somebody restarts it."""
_RETIRED = "it left the directory"


Connect = Callable[[str, "ReplicaLink"], Awaitable[MuxStream]]
"""Dials an address; the stream calls the link's `on_events`, `on_load` and `on_lost`, on the event loop. Raises
HandshakeError or UnavailableError."""


class ReplicaLink:
    """Keeps one stream to a replica, through its restarts. Sequences do not survive a stream."""

    def __init__(
        self,
        replica_id: str,
        address: str,
        connect: Connect,
        check: Callable[[ModelInfo], None] | None,
        on_change: Callable[[], None],
        on_room: Callable[[], None],
        silence_timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`check` raises HandshakeError for a model that does not fit.

        `on_change` hears of every (dis)connection, `on_room` whenever there may be room for one more sequence.
        A replica that is silent for silence_timeout_s is lost.
        """
        self.replica_id = replica_id
        self.address = address
        self.load = LoadReport()
        self.step_table = StepTable()  # as it was published last
        self._connect = connect
        self._check = check
        self._on_change = on_change
        self._on_room = on_room
        self._clock = clock
        self._stream: MuxStream | None = None
        self._lost: asyncio.Future[PilotfishError] | None = None
        self._silence_timeout_s = silence_timeout_s
        self._silence = SilenceWatch(silence_timeout_s, clock())
        self._is_draining = self._is_retired = False
        self._circuit = Circuit()
        self._trial_id = 0
        """The sequence that tries a half-open circuit."""
        self._last_other_sequences = 0
        self.num_other_sequences = 0
        """Sequences of other orchestrators on the replica, as of its last reports."""
        self._sequences: dict[int, Receiver] = {}
        self._ids = itertools.count(1)
        self.problem = "not connected yet"
        """Why it cannot be used; empty when it can."""

    # What sequences need.

    @property
    def is_connected(self) -> bool:
        # A stream that is lost is none even before `run` has noticed: a request would try it again at once, and
        # have no attempts left when another replica could answer.
        return self._stream is not None and self._lost is not None and not self._lost.done()

    @property
    def is_healthy(self) -> bool:
        return self.is_connected and not self._is_draining and self._circuit.allows(self._clock())

    @property
    def circuit_state(self) -> CircuitState:
        """Whether it is left alone because it failed, or about to be tried again."""
        return self._circuit.state(self._clock())

    @property
    def model(self) -> ModelInfo:
        return self._require_stream().model

    @property
    def limits(self) -> Limits:
        return self._require_stream().limits

    @property
    def num_sequences(self) -> int:
        """Sequences of this orchestrator on the replica."""
        return len(self._sequences)

    @property
    def has_room(self) -> bool:
        """Whether the replica takes another sequence, as far as this orchestrator knows."""
        return self.num_sequences < self.num_places

    @property
    def num_places(self) -> int:
        """Sequences that this orchestrator may have on the replica; 0 while it takes no new ones."""
        if self._stream is None or not self.is_connected or self._is_draining:
            return 0
        return max(0, self._stream.limits.max_sequences - self.num_other_sequences)

    def serves(self, sequence_id: int) -> bool:
        """Whether an open sequence should stay: on a replica that fails, only the one that tries it again."""
        if not self.is_connected or self._is_draining:
            return False
        return self._circuit.is_closed or sequence_id == self._trial_id

    def new_sequence_id(self) -> int:
        return next(self._ids)

    def attach(self, sequence_id: int, receiver: Receiver) -> None:
        self._sequences[sequence_id] = receiver
        if not self._circuit.is_closed:
            self._trial_id = sequence_id
            self._circuit.begin_trial(self._clock())

    def detach(self, sequence_id: int) -> None:
        self._sequences.pop(sequence_id, None)
        if sequence_id == self._trial_id:
            self._trial_id = 0
            self._circuit.end_trial()
        if self._is_retired and not self._sequences:
            self.on_lost(UnavailableError(_RETIRED))
        self._on_room()

    def send(self, command: Command) -> None:
        self._require_stream().send(command)

    def report_failure(self, reason: str) -> None:
        if self._circuit.failed(self._clock()):
            self._trial_id = 0  # a trial that failed is over: its sequence leaves as the others did
            self.problem = reason
            _log.warning("%s is skipped for a while: %s", self.address, reason)

    def report_success(self) -> None:
        if self._circuit.succeeded():
            self.problem = ""
            _log.info("replica %s at %s works again", self.replica_id, self.address)

    def report_draining(self) -> None:
        self._is_draining = True
        self.problem = "draining"

    def report_full(self) -> None:
        """The replica refused a sequence for want of a place: others have the rest, until it reports otherwise."""
        if self._stream is not None:
            self.num_other_sequences = self._stream.limits.max_sequences - self.num_sequences
            self._last_other_sequences = self.num_other_sequences

    def retire(self) -> None:
        """The replica left the directory: no new sequences, and no stream any more once the open ones have ended or
        moved."""
        self._is_retired = True
        self.report_draining()
        self.problem = _RETIRED
        if not self._sequences:
            self.on_lost(UnavailableError(_RETIRED))

    # What the stream reports.

    def on_events(self, events: Sequence[Event]) -> None:
        self._silence.heard(self._clock())
        for event in events:
            sequence = self._sequences.get(event.sequence_id)
            if sequence is not None:
                sequence.deliver(event)

    def on_load(self, load: LoadReport) -> None:
        self._silence.heard(self._clock())
        self.load = load
        self.step_table = load.step_table if load.step_table.rows else self.step_table
        self._note_others(load)
        if load.draining and not self._is_draining:
            _log.info("replica %s at %s drains", self.replica_id, self.address)
            self.report_draining()

    def _note_others(self, load: LoadReport) -> None:
        """Count what is not ours. A report may cross with our own Open or Close: only two in a row are believed."""
        latest = max(0, load.num_sequences_running + load.num_sequences_waiting - self.num_sequences)
        believed, before = min(latest, self._last_other_sequences), self.num_other_sequences
        self._last_other_sequences = latest
        self.num_other_sequences = believed
        if believed < before:
            self._on_room()

    def on_lost(self, error: PilotfishError) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(error)

    # The connection's life.

    async def run(self) -> None:
        """Connect, and again after every loss, until cancelled or retired."""
        backoff_s = _FIRST_BACKOFF_S
        while True:
            try:
                await self._live_once()
            except HandshakeError as error:
                backoff_s = _MISMATCH_BACKOFF_S
                self._note(error)
            except PilotfishError as error:
                self._note(error)
            except Exception as error:
                # Without another try the replica would be out of use until this orchestrator is restarted.
                _log.exception("the link to %s failed", self.address)
                self._note(InternalError(f"the link failed: {error!r}"))
            else:
                backoff_s = _FIRST_BACKOFF_S
            if self._is_retired:
                return
            # Jitter: the orchestrators of a pool shall not dial a restarted replica in step.
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
            backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)

    async def _live_once(self) -> None:
        """One stream from handshake to loss. Raises HandshakeError or UnavailableError if none came about."""
        self._lost = asyncio.get_running_loop().create_future()
        stream = await self._connect(self.address, self)
        try:
            if self._check is not None:
                self._check(stream.model)
            self._stream = stream
            self._silence = SilenceWatch(self._silence_timeout_s, self._clock())
            self._is_draining = False
            self._circuit = Circuit()
            self.problem = ""
            self.load = LoadReport()
            self.step_table = StepTable()
            self.num_other_sequences = 0
            self._last_other_sequences = 0
            _log.info("connected to replica %s at %s", self.replica_id, self.address)
            self._on_change()
            error = await self._loss(self._lost)
            self._note(error)
        finally:
            was_connected, self._stream = self._stream is not None, None
            self._fail_sequences()
            if was_connected:
                self._on_change()
            await stream.close()

    async def _loss(self, lost: asyncio.Future[PilotfishError]) -> PilotfishError:
        while True:
            done, _ = await asyncio.wait((lost,), timeout=self._silence.check_interval_s)
            if done:
                return lost.result()
            for sequence in tuple(self._sequences.values()):
                sequence.fail_if_overdue()
            if self._silence.is_over(self._clock()):
                return UnavailableError(f"nothing was heard for {self._silence_timeout_s:g} s")

    def _fail_sequences(self) -> None:
        error = UnavailableError(f"a replica was lost: {self.problem or 'closed'}")
        for sequence in tuple(self._sequences.values()):
            sequence.fail(error)

    def _note(self, error: PilotfishError) -> None:
        if str(error) != self.problem:
            _log.warning("%s cannot be used: %s", self.address, error)
        self.problem = str(error)

    def _require_stream(self) -> MuxStream:
        if self._stream is None:
            raise UnavailableError(f"{self.address} is not connected: {self.problem}")
        return self._stream
