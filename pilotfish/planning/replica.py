"""A target replica of a simulated fleet: its sequences decode like fluids, at a rate that depends on how many they are.

Something happens only where the rate changes: a prompt is read, an answer ends. In between every sequence decodes
equally many tokens, so that one clock, counting tokens, says for all of them when they end.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

from pilotfish.planning.rates import ReplicaRates
from pilotfish.planning.workload import Request

_ROUNDING_TOKENS = 1e-6
"""Rounding may leave a rest that no time is left for."""


@dataclass(slots=True, eq=False)
class Running:
    """A request on its way. Times in seconds of the simulation."""

    request: Request
    is_counted: bool = True
    """False while the fleet warms up."""
    outside_s: float = 0.0
    """Time of its first token besides waiting in line and reading the prompt."""
    first_token_s: float = 0.0


class FleetReplica:
    """Reads prompts in the order of their arrival and decodes the rest together."""

    def __init__(self, rates: ReplicaRates) -> None:
        self._rates = rates
        self.num_held = 0
        """Requests, those whose prompt waits included."""
        self.num_kv_tokens = 0
        """Reserved for whole answers."""
        self.next_s = math.inf
        """When the next prompt is read or the next answer ends."""
        self.busy_s = 0.0
        self.token_seconds = 0.0
        """Integral over time of the sequences that decode: their mean number times the time."""
        self._now_s = 0.0
        self._waiting: deque[Running] = deque()
        self._prefilling: list[Running] = []
        self._prefill_end_s = 0.0
        self._slowdown = 1.0
        """Factor by which decoding takes longer while prompts are read."""
        self._decoding: list[tuple[float, int, Running]] = []
        """Heap by the place on the clock where each ends."""
        self._clock_tokens = 0.0
        """Tokens that a sequence would have decoded that was always here."""
        self._tokens_per_s = 0.0
        """Speed of each sequence now."""
        self._num_started = 0

    @property
    def num_decoding(self) -> int:
        return len(self._decoding)

    def take(self, running: Running, now_s: float) -> None:
        """A request comes; its prompt is read after those that wait already."""
        self._pass_time(now_s)
        self.num_held += 1
        self.num_kv_tokens += running.request.num_kv_tokens
        self._waiting.append(running)
        self._settle()

    def advance(self, now_s: float) -> list[Running]:
        """Let time pass, up to next_s at most. Returns the requests whose answers have ended."""
        self._pass_time(now_s)
        if self._prefilling and now_s >= self._prefill_end_s:
            for running in self._prefilling:
                running.first_token_s = now_s
                self._num_started += 1
                end = self._clock_tokens + running.request.num_output_tokens - 1
                heappush(self._decoding, (end, self._num_started, running))
            self._prefilling = []
        ended = []
        while self._decoding and self._decoding[0][0] <= self._clock_tokens + _ROUNDING_TOKENS:
            ended.append(heappop(self._decoding)[2])
        self.num_held -= len(ended)
        self.num_kv_tokens -= sum(running.request.num_kv_tokens for running in ended)
        self._settle()
        return ended

    def _pass_time(self, now_s: float) -> None:
        elapsed_s, self._now_s = now_s - self._now_s, now_s
        if self.num_held:
            self.busy_s += elapsed_s
        if self._decoding:
            self.token_seconds += elapsed_s * len(self._decoding)
            self._clock_tokens += elapsed_s * self._tokens_per_s

    def _settle(self) -> None:
        """After anything has happened: begin what can begin, find the new rate, and when something happens next."""
        if not self._prefilling and self._waiting:
            self._begin_prefill()
        self.next_s = self._prefill_end_s if self._prefilling else math.inf
        if self._decoding:
            token_s = self._rates.token_s[len(self._decoding)] * (self._slowdown if self._prefilling else 1.0)
            self._tokens_per_s = 1 / token_s
            num_left = max(0.0, self._decoding[0][0] - self._clock_tokens)
            self.next_s = min(self.next_s, self._now_s + num_left * token_s)

    def _begin_prefill(self) -> None:
        """Begin to read as many prompts as fit a step, at least one."""
        batch, num_waiting = len(self._decoding), len(self._waiting)
        budget = self._rates.num_chunk_tokens(batch, num_waiting)
        num_tokens = 0
        while self._waiting and (not num_tokens or num_tokens + self._waiting[0].request.num_prompt_tokens <= budget):
            running = self._waiting.popleft()
            num_tokens += running.request.num_prompt_tokens
            self._prefilling.append(running)
        # Decodes go on, in steps that the prompts make longer.
        duration_s, self._slowdown = self._rates.prefill(batch, num_tokens, num_waiting)
        self._prefill_end_s = self._now_s + duration_s
