"""What the faults of a draft service cost a vLLM that asks it: the same requests with and without, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import shared.checkout  # noqa: F401  # finds tests.support
from shared.real_models import ANSWER_TIMEOUT_S

from pilotfish.bench.peers.process import Batch, PeerProcess
from pilotfish.errors import PilotfishError
from tests.support.conditions import Conditions
from tests.support.proxy_process import ProxyProcess
from tests.support.service_process import ServiceProcess

SLOW = Conditions(delay_ms=100)
"""Each way: no answer comes within a step."""
SLUGGISH = Conditions(delay_ms=5)
"""Each way: answers come before the deadline, and cost half a step."""
_STRIKE_AFTER_S = 0.3
"""A fault strikes in the middle of an answer."""


@dataclass(frozen=True)
class Phase:
    """Some requests under one fault."""

    name: str
    strike: Callable[[], object] | None
    """What happens in the middle of the first request; None: nothing."""
    is_gone: bool
    """Whether drafts are missing in it."""


@dataclass(frozen=True)
class Outcome:
    """One phase."""

    phase: Phase
    num_requests: int
    num_failed: int
    plain_tokens_per_s: float
    remote_tokens_per_s: float
    num_missed_deadlines: float

    @property
    def ratio(self) -> float:
        return self.remote_tokens_per_s / self.plain_tokens_per_s


def phases(draft: ServiceProcess, proxy: ProxyProcess) -> list[Phase]:
    """In their order; the draft service is well again at the end."""
    return [
        Phase("sound", None, False),
        Phase("stopped", draft.kill, True),
        Phase("restarted", lambda: (draft.start(), draft.wait_listening()), False),
        Phase("frozen", draft.freeze, True),
        Phase("thawed", draft.thaw, False),
        Phase("slow (100 ms each way)", lambda: proxy.apply(SLOW), True),
        Phase("sluggish (5 ms each way)", lambda: proxy.apply(SLUGGISH), False),
        Phase("sound again", lambda: proxy.apply(Conditions()), False),
    ]


def measure(
    phase: Phase, plain: PeerProcess, remote: PeerProcess, prompts: Sequence[Sequence[int]], max_tokens: int
) -> Outcome:
    """The prompts one by one, each by both in turns."""
    seconds = {plain: 0.0, remote: 0.0}
    tokens = {plain: 0, remote: 0}
    num_failed = 0
    before = after = answer(remote, prompts[0], 1, None).counters
    for index, prompt in enumerate(prompts):
        for vllm in (plain, remote) if index % 2 else (remote, plain):
            strike = phase.strike if vllm is remote and index == 0 else None
            try:
                batch = answer(vllm, prompt, max_tokens, strike)
            except PilotfishError:
                num_failed += 1
                continue
            num_failed += not batch.num_tokens
            seconds[vllm] += batch.elapsed_s
            tokens[vllm] += batch.num_tokens
            if vllm is remote:
                after = batch.counters
    speeds = {vllm: tokens[vllm] / seconds[vllm] for vllm in (plain, remote)}
    missed = after["num_missed_deadlines"] - before["num_missed_deadlines"]
    return Outcome(phase, len(prompts), num_failed, speeds[plain], speeds[remote], missed)


def answer(vllm: PeerProcess, prompt: Sequence[int], max_tokens: int, strike: Callable[[], object] | None) -> Batch:
    """One answer, and in the middle of it what `strike` does. Raises PilotfishError."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        asked = executor.submit(vllm.ask, [prompt], max_tokens=max_tokens, mode="", timeout_s=ANSWER_TIMEOUT_S)
        if strike is not None:
            time.sleep(_STRIKE_AFTER_S)
            strike()  # on this thread: a process that is started ends with the thread that started it
        return asked.result()
