"""An engine without a model behind the EngineClient protocol, with step times as wished."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import msgspec

from pilotfish.engine.event_queue import EventQueue
from pilotfish.errors import PilotfishError, UnavailableError
from pilotfish.messages import Command, Event
from pilotfish.testing.emulated_core import EmulatedCore
from pilotfish.testing.language_model import HashLanguageModel
from pilotfish.types import Limits, LoadReport, ModelInfo

EMULATED_FINGERPRINT = "emulated"

StepTime = Callable[[int], float]
"""Token rows of a step -> its duration in seconds."""


class EmulatedEngine:
    """Target and draft engine in one: it answers what it is asked. Must be made on a running event loop.

    Its text is that of `language_model`; a draft engine with the same language model proposes the
    target's next token with probability `acceptance`.
    """

    def __init__(
        self,
        role: Literal["target", "draft"] = "target",
        *,
        language_model: HashLanguageModel | None = None,
        acceptance: float = 0.8,
        step_time_s: float | StepTime = 0.0,
        limits: Limits | None = None,
        max_context_tokens: int = 4096,
        tokenizer_fingerprint: str = EMULATED_FINGERPRINT,
        tokenizer_path: str = "",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """step_time_s: duration of a step, or a function of its token rows; 0 answers at once.

        `sleep` waits in its place, for tests with a clock of their own.
        """
        language_model = language_model or HashLanguageModel()
        model = ModelInfo(
            model_id="emulated",
            tokenizer_fingerprint=tokenizer_fingerprint,
            vocab_size=language_model.vocab_size,
            max_context_tokens=max_context_tokens,
            deterministic=True,
            proposer="emulated" if role == "draft" else "",
            emulated=True,
            tokenizer_path=tokenizer_path,
        )
        self.core = EmulatedCore(
            model, limits or Limits(max_draft_tokens=16, max_sequences=256), language_model, acceptance=acceptance
        )
        self._step_time = step_time_s if callable(step_time_s) else lambda _num_tokens: step_time_s
        self._sleep = sleep
        self._queue = EventQueue()
        self._has_work = asyncio.Event()
        self._step_time_ns = 0
        self._task = asyncio.create_task(self._run())

    @property
    def model(self) -> ModelInfo:
        return self.core.model

    @property
    def limits(self) -> Limits:
        return self.core.limits

    @property
    def load(self) -> LoadReport:
        return msgspec.structs.replace(self.core.load(), step_time_ns=self._step_time_ns)

    @property
    def num_sequences(self) -> int:
        """Sequences held: 0 again when every peer has closed its own."""
        return self.core.num_sequences

    def send(self, commands: Sequence[Command]) -> None:
        self._queue.raise_if_failed()
        for command in commands:
            self.core.submit(command)
        if self.core.has_work:
            self._has_work.set()

    async def receive(self) -> Sequence[Event]:
        return await self._queue.receive()

    def die(self, error: PilotfishError | None = None) -> None:
        """End as a crashed engine process does."""
        self._task.cancel()
        self._queue.fail(error or UnavailableError("the emulated engine was told to die"))

    async def close(self) -> None:
        self.die(UnavailableError("the engine was closed"))
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            await self._has_work.wait()
            duration_s = self._step_time(self.core.num_batch_tokens) if self.core.num_batch_tokens else 0.0
            # Also without a duration: a step of a long run lets others have their turn.
            await self._sleep(duration_s)
            self._queue.put(self.core.step())
            self._step_time_ns = int(duration_s * 1e9)
            if not self.core.has_work:
                self._has_work.clear()
