"""The drafter's event loop, on a thread of vLLM's worker: it starts, connects and ends by itself."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import AsyncIterator

from orchestrator.replicas.directory import NameFollower, ReplicaDirectory
from orchestrator.replicas.link import ReplicaLink
from orchestrator.replicas.pool import ReplicaPool
from orchestrator.rounds.drafter_clients.predraft_policy import PredraftPolicy
from pilotfish.config import OrchestratorConfig
from pilotfish.config.orchestrator import DNS_PREFIX
from pilotfish.config.vllm import RemoteProposerConfig
from pilotfish.errors import PilotfishError
from pilotfish.integrations.vllm.batch_drafter import BatchDrafter
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.step import DraftingStep
from pilotfish.integrations.vllm.target_model import TargetModel
from pilotfish.rpc.handshake import Hello
from pilotfish.rpc.link_security import LinkSecurity
from pilotfish.rpc.stream import MuxStream
from pilotfish.telemetry.tracing import Tracing

# vLLM gives handlers and a level to loggers of this name alone.
_log = logging.getLogger("vllm.pilotfish")

PEER_NAME = "vllm"
_CHECK_S = 1.0
_STOP_TIMEOUT_S = 5.0
_AFTERMATH_S = 0.1
"""Time for gRPC to end: it reports cancelled calls a moment later, and takes a closed loop for an error then."""


class BackgroundDrafting:
    """A batch's drafter, as vLLM's thread sees it: nothing blocks but a step's wait."""

    def __init__(
        self, config: RemoteProposerConfig, target: TargetModel, security: LinkSecurity, counters: ProposerCounters
    ) -> None:
        """Returns at once; the connections come about behind it."""
        self.counters = counters
        self._config = config
        self._target = target
        self._security = security
        self._directory = ReplicaDirectory()
        self._loop = asyncio.new_event_loop()
        self._drafting: BatchDrafter | None = None
        self._stopped = asyncio.Event()
        self._connected: frozenset[str] = frozenset()
        self._misses_to_log = 1
        self.is_usable = False
        """Whether asking may be answered, as of the last step or the last change of the connections."""
        # A daemon: vLLM's workers end without asking anybody.
        self._thread = threading.Thread(target=self._run, name="pilotfish-drafting", daemon=True)
        self._thread.start()

    @property
    def is_ready(self) -> bool:
        """Whether it takes steps."""
        return self._drafting is not None

    def begin(self, step: DraftingStep) -> None:
        """Hand a step over; wait for its drafts with step.wait. Raises RuntimeError once it was stopped."""
        self._loop.call_soon_threadsafe(self._begin, step)

    def stop(self) -> None:
        """Close the connections and end the thread, within a few seconds. Idempotent."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # its loop may end just now
                self._loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join(_STOP_TIMEOUT_S)

    def _begin(self, step: DraftingStep) -> None:
        if self._drafting is None:
            step.expect(())  # it was stopped just now
            return
        try:
            self._drafting.begin(step)
            self.is_usable = self._drafting.is_usable
        except Exception:
            # Whatever it is, vLLM goes on: the rows that it has end without drafts, and new ones have them again.
            self.counters.num_drafter_faults += 1
            if self.counters.num_drafter_faults == 1:
                _log.exception("Pilotfish's drafter failed in a step; it begins anew each time; logged once")
            self._drafting.close()
            step.expect(())

    def _note_change(self, pool: ReplicaPool) -> None:
        """Replicas came or went: vLLM's log shows when drafts begin to come, and when none will."""
        if self._drafting is not None:
            self.is_usable = self._drafting.is_usable
        before, self._connected = self._connected, pool.connected_ids
        if self._connected and self._connected != before:
            links = [link for link in pool.links if link.is_connected]
            names = ", ".join(f"{link.address} ({link.model.proposer})" for link in links)
            _log.info("Pilotfish drafts for vLLM: %s", names)
        elif before and not self._connected:
            _log.warning("vLLM decodes without drafts: %s", pool.absence_reason)

    def _note_misses(self) -> None:
        """Log drafts that came too late, ever more rarely."""
        num_missed = self.counters.num_missed_deadlines
        if num_missed >= self._misses_to_log:
            self._misses_to_log = 10 * num_missed
            deadline_ms = self._config.draft_deadline_ms
            _log.warning("%d drafts came too late for their step (draft_deadline_ms=%g)", num_missed, deadline_ms)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except PilotfishError as error:
            _log.error("vLLM serves without Pilotfish's drafts: %s", error)
        except Exception:
            _log.exception("vLLM serves without Pilotfish's drafts: the drafter ended")
        finally:
            self._drafting = None
            self.is_usable = False
            self._loop.run_until_complete(asyncio.sleep(_AFTERMATH_S))
            self._loop.close()

    async def _serve(self) -> None:
        """Draft until it is stopped. Raises PilotfishError for what no waiting mends."""
        fingerprint = ""
        if self._config.check_tokenizer:
            fingerprint = await asyncio.to_thread(self._target.fingerprint, self._config.tokenizer)
        tracing = Tracing(self._config.telemetry, "pilotfish-vllm")
        async with self._connections(fingerprint) as pool:
            policy = PredraftPolicy(self._config.draft_ahead, self._config.draft_ahead_tokens)
            drafting = self._drafting = BatchDrafter(pool, self._target, policy, self.counters, tracing)
            self._note_change(pool)
            try:
                while not self._stopped.is_set():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_CHECK_S):
                            await self._stopped.wait()
                    drafting.leave_if_idle()
                    self._note_misses()
            finally:
                drafting.close()
                await tracing.close()

    @contextlib.asynccontextmanager
    async def _connections(self, fingerprint: str) -> AsyncIterator[ReplicaPool]:
        """The draft replicas, as they come and go."""

        async def connect(address: str, handlers: ReplicaLink) -> MuxStream:
            return await MuxStream.connect(
                address,
                service="draft",
                hello=Hello(peer=PEER_NAME, tokenizer_fingerprint=fingerprint),
                on_events=handlers.on_events,
                on_load=handlers.on_load,
                on_lost=handlers.on_lost,
                security=self._security,
            )

        addresses, timeout_s = self._config.draft_addresses, self._config.silence_timeout_s
        self._directory.set_replicas("draft", {each: each for each in addresses if not each.startswith(DNS_PREFIX)})
        pool = ReplicaPool("draft", self._directory, connect, self._target.check_drafter, silence_timeout_s=timeout_s)
        pool.on_change(functools.partial(self._note_change, pool))
        pool.start()
        try:
            names = await NameFollower.start(OrchestratorConfig(draft_addresses=addresses), self._directory)
            try:
                yield pool
            finally:
                await names.close()
        finally:
            await pool.close()
