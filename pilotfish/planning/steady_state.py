"""A replica under a steady stream of requests: the fast estimate that a simulation begins from.

Mean values only: n sequences decode, where their tokens per second equal what arrives (Little's law).
"""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.planning.rates import ReplicaRates
from pilotfish.planning.workload import Workload


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Where one replica settles."""

    batch: int
    """Sequences that decode at once."""
    token_s: float
    """From token to token of one sequence, prefills of others included."""
    prefill_share: float
    """Of the time, spent in steps that read prompts."""


def steady_state(rates: ReplicaRates, workload: Workload, replica_rate: float) -> SteadyState | None:
    """replica_rate: requests per second that this replica gets. None where it cannot keep up."""
    prompt_tokens, output_tokens = round(workload.mean_prompt_tokens), workload.mean_output_tokens
    profile = rates.model.profile
    room = int(profile.kv_cache_tokens // (prompt_tokens + output_tokens))
    demand = replica_rate * (output_tokens - 1)
    for batch in range(1, min(profile.max_sequences, room) + 1):
        prefill_s = rates.prefill_s(batch, prompt_tokens)
        prefill_share = replica_rate * prefill_s
        if prefill_share >= 1:
            return None
        slowdown = rates.slowdown(batch, prompt_tokens, prefill_s)
        token_s = rates.token_s[batch] / (1 - prefill_share + prefill_share / slowdown)
        if batch / token_s >= demand:
            return SteadyState(batch, token_s, prefill_share)
    return None


def capacity(rates: ReplicaRates, workload: Workload, *, token_s: float) -> float:
    """Requests per second that one replica serves with at most token_s from token to token, on average."""
    low, high = 0.0, 1.0
    while _holds(rates, workload, high, token_s):
        low, high = high, 2 * high
    for _ in range(30):
        middle = (low + high) / 2
        if _holds(rates, workload, middle, token_s):
            low = middle
        else:
            high = middle
    return low


def _holds(rates: ReplicaRates, workload: Workload, replica_rate: float, token_s: float) -> bool:
    state = steady_state(rates, workload, replica_rate)
    return state is not None and state.token_s <= token_s
