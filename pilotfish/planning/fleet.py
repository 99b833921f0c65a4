"""A fleet under load: requests arrive, wait where no replica has room, and are served. Discrete events by simpy.

Approximations: replicas are fluids (replica.py), so that tokens of a sequence come evenly; all sequences count as of
mean length where context costs time; whole answers are reserved in the KV cache, none is ever preempted; the prefix
cache does not exist; the drafters' reading of prompts is free.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator

import simpy

from pilotfish.emulation.profiles import HardwareProfile
from pilotfish.errors import ConfigError
from pilotfish.planning.outcome import Outcome
from pilotfish.planning.rates import ReplicaRates
from pilotfish.planning.replica import Replica
from pilotfish.planning.router import LeastLoaded
from pilotfish.planning.running import Running
from pilotfish.planning.workload import Request


class FleetSimulation:
    """num_targets replicas that are alike. Used once."""

    def __init__(
        self, rates: ReplicaRates, num_targets: int, *, round_trip_s: float = 0.0, seed: int = 0, warm_up: int = 0
    ) -> None:
        """warm_up: the first so many requests are served, but not counted."""
        self.env = simpy.Environment()
        self._rates = rates
        self._replicas = [
            Replica(self.env, rates, on_first_token=self._note_first_token, on_finished=self._note_finished)
            for _ in range(num_targets)
        ]
        profile = rates.model.profile
        self._router = LeastLoaded(
            self._replicas, max_sequences=profile.max_sequences, kv_cache_tokens=profile.kv_cache_tokens
        )
        self._round_trip_s = round_trip_s
        self._random = random.Random(seed)
        self._queue: deque[Running] = deque()
        self._to_come: Iterator[Request] = iter(())
        self._is_closed_loop = False
        self._num_left_to_warm_up = warm_up
        self._outcome = Outcome(num_targets=num_targets)

    def run_open(self, requests: Iterator[Request]) -> Outcome:
        """Each arrives at its time, however busy the fleet is."""
        self._to_come = requests
        self._arrange_next()
        return self._run()

    def run_closed(self, requests: Iterator[Request], concurrency: int) -> Outcome:
        """So many clients send their next request when the last is answered; arrival times are ignored."""
        self._to_come, self._is_closed_loop = requests, True
        for _ in range(concurrency):
            self._send_next()
        return self._run()

    def _run(self) -> Outcome:
        self.env.run()
        for replica in self._replicas:
            replica.finish_accounts()
        self._outcome.close(
            duration_s=self.env.now,
            busy_s=sum(replica.busy_s for replica in self._replicas),
            decoding_seconds=sum(replica.token_seconds for replica in self._replicas),
        )
        return self._outcome

    def _arrange_next(self) -> None:
        request = next(self._to_come, None)
        if request is not None:
            delay_s = max(0.0, request.arrival_s - self.env.now)
            self.env.timeout(delay_s).callbacks.append(lambda _: self._arrive(request))

    def _arrive(self, request: Request) -> None:
        self._admit(request)
        self._arrange_next()

    def _send_next(self) -> None:
        request = next(self._to_come, None)
        if request is not None:
            self._admit(request)

    def _admit(self, request: Request) -> None:
        require_room(self._rates.model.profile, request)
        running = Running(request, self.env.now, is_counted=not self._num_left_to_warm_up)
        self._num_left_to_warm_up = max(0, self._num_left_to_warm_up - 1)
        self._queue.append(running)
        self._start_queued()

    def _start_queued(self) -> None:
        while self._queue:
            replica = self._router.pick(self._queue[0].num_kv_tokens)
            if replica is None:
                return
            running = self._queue.popleft()
            running.start_s = self.env.now
            before = replica.num_held
            # It joins when the step that runs now is over.
            batch = replica.num_decoding
            running.join_s = self._random.random() * self._rates.step_s[batch] if batch else 0.0
            replica.start(running)
            self._router.moved(replica, before=before, now=replica.num_held)

    def _note_first_token(self, running: Running) -> None:
        running.first_token_s = self.env.now

    def _note_finished(self, replica: Replica, running: Running) -> None:
        self._router.moved(replica, before=replica.num_held + 1, now=replica.num_held)
        if running.is_counted:
            self._outcome.add(running, self.env.now, self._round_trip_s)
        if self._is_closed_loop:
            self._send_next()
        self._start_queued()


def require_room(profile: HardwareProfile, request: Request) -> None:
    """Raises ConfigError for a request that no replica can hold."""
    num_tokens = request.num_prompt_tokens + request.num_output_tokens
    if num_tokens > min(profile.kv_cache_tokens, profile.max_context_tokens):
        raise ConfigError(
            f"a request of {request.num_prompt_tokens} + {request.num_output_tokens} tokens never fits a replica of "
            f"profile {profile.name} ({profile.max_context_tokens} tokens of context, {profile.kv_cache_tokens} in the "
            "KV cache): plan shorter ones"
        )
