"""How much the lookups of an orchestrator keep in memory, whatever clients ask for."""

from __future__ import annotations


class LookupBudget:
    """Counts the tokens that lookups have indexed, of all requests."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.num_tokens = 0
        self.num_refused = 0
        """Requests that went on without a lookup."""

    def take(self, num_tokens: int) -> bool:
        """Whether there is room for so many more; then they are counted."""
        if self.num_tokens + num_tokens > self.max_tokens:
            return False
        self.num_tokens += num_tokens
        return True

    def give_back(self, num_tokens: int) -> None:
        self.num_tokens -= num_tokens
