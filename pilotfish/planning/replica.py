"""A target replica of a simulated fleet: its sequences decode like fluids, at a rate that depends on how many they are.

An event happens only where the rate changes: a prompt is read, an answer ends. In between every sequence decodes
equally many tokens, so that one clock, counting tokens, tells for all of them when they end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

import simpy

from pilotfish.planning.rates import ReplicaRates
from pilotfish.planning.running import Running


class Replica:
    """Reads prompts in the order of their arrival and decodes the rest together."""

    def __init__(
        self,
        env: simpy.Environment,
        rates: ReplicaRates,
        *,
        on_first_token: Callable[[Running], None],
        on_finished: Callable[[Replica, Running], None],
    ) -> None:
        self._env, self._rates = env, rates
        self._on_first_token, self._on_finished = on_first_token, on_finished
        self.num_held = 0
        """Requests, those whose prompt waits included."""
        self.num_kv_tokens = 0
        """Reserved for whole answers."""
        self.busy_s = 0.0
        self.token_seconds = 0.0
        """Integral over time of the sequences that decode: their mean number times the time."""
        self._waiting: deque[Running] = deque()
        self._prefilling: list[Running] = []
        self._prefill_end_s = 0.0
        self._slowdown = 1.0
        """Of decoding, while prompts are read."""
        self._decoding: list[tuple[float, int, Running]] = []
        """Heap by the place on the clock where each ends."""
        self._clock_tokens = 0.0
        """Tokens that a sequence would have decoded that was always here."""
        self._clock_s = 0.0
        """When the clock was read last."""
        self._rate = 0.0
        """Tokens per second of each sequence, now."""
        self._wake_s = float("inf")
        """The earliest time at which this replica is woken up."""
        self._num_started = 0

    @property
    def num_decoding(self) -> int:
        return len(self._decoding)

    def start(self, request: Running) -> None:
        """Take a request; its prompt is read after those that wait already."""
        self._advance()
        self.num_held += 1
        self.num_kv_tokens += request.num_kv_tokens
        self._waiting.append(request)
        self._settle()

    def finish_accounts(self) -> None:
        """Bring the integrals up to now."""
        self._advance()

    def _advance(self) -> None:
        now_s = self._env.now
        elapsed_s = now_s - self._clock_s
        if elapsed_s > 0:
            self._clock_s = now_s
            if self.num_held:
                self.busy_s += elapsed_s
            if self._decoding:
                self.token_seconds += elapsed_s * len(self._decoding)
                self._clock_tokens += elapsed_s * self._rate

    def _settle(self) -> None:
        """After anything has happened: begin what can begin, find the new rate, and when to look again."""
        if not self._prefilling and self._waiting:
            self._begin_prefill()
        batch = len(self._decoding)
        next_s = float("inf")
        if batch:
            token_s = self._rates.token_s[batch]
            if self._prefilling:
                token_s *= self._slowdown
            self._rate = 1 / token_s
            next_s = self._clock_s + max(0.0, self._decoding[0][0] - self._clock_tokens) * token_s
        if self._prefilling:
            next_s = min(next_s, self._prefill_end_s)
        # One that comes too early finds nothing to do and looks again: cheaper than cancelling it.
        if next_s < self._wake_s:
            self._wake_s = next_s
            self._env.timeout(max(0.0, next_s - self._env.now), next_s).callbacks.append(self._wake)

    def _begin_prefill(self) -> None:
        """As many prompts as fit a step, at least one."""
        batch = len(self._decoding)
        budget = self._rates.num_chunk_tokens[batch]
        num_tokens = 0
        while self._waiting and (not num_tokens or num_tokens + self._waiting[0].num_prompt_tokens <= budget):
            request = self._waiting.popleft()
            num_tokens += request.num_prompt_tokens
            self._prefilling.append(request)
        duration_s = self._rates.prefill_s(batch, num_tokens)
        self._prefill_end_s = self._env.now + duration_s
        # Decodes go on, in steps that the prompts make longer.
        self._slowdown = self._rates.slowdown(batch, num_tokens, duration_s)

    def _wake(self, event: simpy.Event) -> None:
        if event.value == self._wake_s:
            self._wake_s = float("inf")
        self._advance()
        if self._prefilling and self._env.now >= self._prefill_end_s:
            self._end_prefill()
        # Rounding may leave a rest that no time is left for.
        due = self._clock_tokens + 1e-6
        while self._decoding and self._decoding[0][0] <= due:
            self._finish(heappop(self._decoding)[2])
        self._settle()

    def _end_prefill(self) -> None:
        ended, self._prefilling = self._prefilling, []
        for request in ended:
            self._on_first_token(request)
            if request.num_output_tokens == 1:
                self._finish(request)
                continue
            self._num_started += 1
            end = self._clock_tokens + request.num_output_tokens - 1
            heappush(self._decoding, (end, self._num_started, request))

    def _finish(self, request: Running) -> None:
        self.num_held -= 1
        self.num_kv_tokens -= request.num_kv_tokens
        self._on_finished(self, request)
