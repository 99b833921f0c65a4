"""An engine without a model behind the EngineClient protocol, with step times as wished."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.drafter import Acceptance
from pilotfish.emulation.head import EmulatedHead
from pilotfish.emulation.head_core import EmulatedHeadCore
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import RooflineCost, StepCost
from pilotfish.emulation.step_timer import StepTimer
from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.engine.core.engine import STUCK_POLL_NS
from pilotfish.engine.process.process_engine import EventQueue
from pilotfish.engine.process.wire import Role
from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.messages import EngineCommand, Event
from pilotfish.types import Limits, ModelInfo

EMULATED_FINGERPRINT = "emulated"
_FEATURE_LAYERS = (0,)
"""What stands for the layers of emulated features."""
MAX_CREDIT_NS = 1_000_000
"""A machine that is late with the end of a step makes it up in the next ones, up to this much."""


class EmulatedEngine:
    """Target and draft engine in one: it answers what it is asked. Must be made on a running event loop.

    Its text is that of `language_model`; a draft engine with the same language model proposes the
    target's next token with probability `acceptance`.
    """

    def __init__(
        self,
        role: Role = "target",
        *,
        language_model: HashLanguageModel | None = None,
        acceptance: Acceptance = 0.8,
        step_time_s: float = 0.0,
        step_cost: StepCost | None = None,
        limits: Limits | None = None,
        max_context_tokens: int = 4096,
        max_batch_tokens: int = 8192,
        kv_cache_tokens: int = 1 << 17,
        prefix_caching: bool = True,
        vocab_size: int = 0,
        feature_bytes: int = 0,
        head_cost: StepCost | None = None,
        acceptance_ahead: Acceptance = (),
        drafts_ahead: bool = True,
        model_id: str = "emulated",
        tokenizer_fingerprint: str = EMULATED_FINGERPRINT,
        tokenizer_path: str = "",
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        """step_time_s: duration of every step; 0 answers at once. step_cost: duration by what a step computes, instead.

        vocab_size: token ids that prompts may hold; 0: those below the language model's end.
        feature_bytes: of a token's features, which a target gives and a drafter needs, which is a head then; 0: none.
        head_cost: of a pass of a target's own head; None: it has none.
        acceptance_ahead, drafts_ahead: of a head in the draft service; see EmulatedHeadCore.
        `sleep` waits in the timer's place, for tests with a clock of their own.
        """
        language_model = language_model or HashLanguageModel()
        model = ModelInfo(
            model_id=model_id,
            tokenizer_fingerprint=tokenizer_fingerprint,
            vocab_size=vocab_size or language_model.vocab_size,
            max_context_tokens=max_context_tokens,
            deterministic=True,
            proposer="emulated" if role == "draft" else "" if head_cost is None else EmulatedHead.name,
            emulated=True,
            tokenizer_path=tokenizer_path,
            feature_layers=_FEATURE_LAYERS if feature_bytes else (),
            takes_int8_features=True,
        )
        make_core: Callable[..., EmulatedCore] = EmulatedCore
        if role == "draft" and feature_bytes:
            make_core = partial(EmulatedHeadCore, acceptance_ahead=acceptance_ahead, drafts_ahead=drafts_ahead)
        self.core = make_core(
            model,
            limits or Limits(max_draft_tokens=16, max_sequences=256),
            language_model,
            acceptance=acceptance,
            step_cost=step_cost or RooflineCost(weights_s=step_time_s, token_s=0.0),
            kv_cache_tokens=kv_cache_tokens,
            max_batch_tokens=max_batch_tokens,
            prefix_caching=prefix_caching,
            feature_bytes=feature_bytes,
            head_cost=head_cost,
        )
        self.core.send_first = self._keep_first
        self._first: list[tuple[float, list[Event]]] = []
        """What leaves before the end of the step: seconds after its start."""
        # Tests with a clock of their own count steps.
        self._is_target = role == "target"
        is_delaying = self._is_target and sleep is None
        self._delay = BatchingDelay(self.core.step_costs, max_batch_tokens) if is_delaying else None
        self._sleep = sleep
        self._timer = StepTimer()
        self._queue = EventQueue()
        self._arrived: list[EngineCommand] = []
        self._has_arrived = asyncio.Event()
        self._is_delaying = False
        """Whether a step waits for sequences that come back soon."""
        self.model = model
        self.limits = self.core.limits
        self.load = self.core.load()
        self._task = asyncio.create_task(self._run())

    @property
    def num_sequences(self) -> int:
        """Sequences held: 0 again when every peer has closed its own."""
        return self.core.num_sequences

    def send(self, commands: Sequence[EngineCommand]) -> None:
        """Queue commands; a step that is being computed does not see them."""
        self._queue.raise_if_failed()
        if self._delay is not None:
            self._delay.took(commands, time.monotonic_ns())
        self._arrived.extend(commands)
        self._has_arrived.set()
        if self._is_delaying:
            self._timer.wake()

    async def receive(self) -> Sequence[Event]:
        return await self._queue.receive()

    def die(self, error: PilotfishError | None = None) -> None:
        """End as a crashed engine process does."""
        self._task.cancel()
        self._timer.close()
        self._queue.fail(error or UnavailableError("the emulated engine has ended"))

    async def close(self) -> None:
        """End at once. What peers closed during the last step counts as closed."""
        self.die(UnavailableError("the engine was closed"))
        await asyncio.wait((self._task,))
        self._take()

    async def _run(self) -> None:
        """Step after step, each as long as the cost model says; what arrives meanwhile waits for the next."""
        end_ns = 0
        while True:
            while not self._arrived and not self.core.has_work:
                self.load = self.core.load()
                self._has_arrived.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(STUCK_POLL_NS / 1e9 if self.core.is_waiting else None):
                        await self._has_arrived.wait()
                end_ns = 0
            now_ns = time.monotonic_ns()
            self._take()
            if await self._wait_for_others():
                now_ns, end_ns = time.monotonic_ns(), 0
            events = self.core.step(None if self._delay is None else self._delay.max_rows(now_ns))
            # The hardware did not wait for this process to notice the end of the step before.
            end_ns = max(end_ns, now_ns - MAX_CREDIT_NS if end_ns else now_ns) + round(1e9 * self.core.step_s)
            sent = await self._give_first(end_ns)
            # Where the next step follows at once, it makes up for what this one's end is late.
            await self._wait(end_ns, spin=bool(events) and not self.core.has_work)
            if self._is_target and events:
                self._take()
                events = self.core.go_on(events)
            self.load = self.core.load()
            if self._delay is not None:
                self._delay.gave([*sent, *events], time.monotonic_ns())
            self._queue.put(events)

    def _keep_first(self, events: list[Event]) -> None:
        self._first.append((self.core.step_s, events))

    async def _give_first(self, end_ns: int) -> list[Event]:
        """First tokens leave at their time in the step that ends then; what has left."""
        first, self._first = self._first, []
        for after_s, events in first:
            await self._timer.sleep_until(end_ns - round(1e9 * (self.core.step_s - after_s)))
            self._queue.put(events)
        return [event for _, events in first for event in events]

    def _take(self) -> None:
        """Hand over what has arrived."""
        commands, self._arrived = self._arrived, []
        for command in commands:
            self.core.submit(command)

    async def _wait_for_others(self) -> bool:
        """Wait for sequences that come back soon, as the worker of a real engine does; whether it has waited."""
        has_waited = False
        while self._delay is not None and self.core.has_work:
            wait_ns = self._delay.wait_ns(time.monotonic_ns())
            if wait_ns <= 0:
                break
            has_waited = self._is_delaying = True
            await self._timer.sleep_until(time.monotonic_ns() + wait_ns)
            self._is_delaying = False
            self._take()
        return has_waited

    async def _wait(self, end_ns: int, *, spin: bool) -> None:
        """Wait until a step ends; without a duration still a turn of the loop, so that others have theirs."""
        if self._sleep is not None:
            await self._sleep(self.core.step_s)
        else:
            await self._timer.sleep_until(end_ns, spin=spin and self.core.step_s > 0)
