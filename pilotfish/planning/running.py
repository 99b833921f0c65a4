"""A request on its way through a simulated fleet."""

from __future__ import annotations

from pilotfish.planning.workload import Request


class Running:
    """What is known of it so far. Times in seconds of the simulation."""

    __slots__ = (
        "arrival_s",
        "first_token_s",
        "is_counted",
        "join_s",
        "num_output_tokens",
        "num_prompt_tokens",
        "start_s",
    )

    def __init__(self, request: Request, arrival_s: float, *, is_counted: bool = True) -> None:
        self.arrival_s = arrival_s
        self.is_counted = is_counted
        """False while the fleet warms up."""
        self.num_prompt_tokens = request.num_prompt_tokens
        self.num_output_tokens = request.num_output_tokens
        self.start_s = 0.0
        """When a replica took it."""
        self.join_s = 0.0
        """Waiting for the end of the step that ran then."""
        self.first_token_s = 0.0

    @property
    def num_kv_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens
