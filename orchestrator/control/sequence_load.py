"""One request's part in the load of the replica that decodes it."""

from __future__ import annotations

from orchestrator.control.decision import Decision, RoundResult
from orchestrator.control.mixture import Decoding
from orchestrator.control.reasons import Reason
from orchestrator.control.replica_state import ControlState, ProposerState
from orchestrator.requests.request import GenerationRequest
from pilotfish.drafter_registry import DRAFTERS, Needs
from pilotfish.types import ModelInfo

_LEAST_PRICE = 0.005
"""Least price of a row, however free it is in the target's steps: growing and sending trees takes time as well."""


class SequenceLoad:
    """Follows the request from replica to replica, from its first output token on: prefills do not count."""

    def __init__(self, state: ControlState, request: GenerationRequest, *, is_governed: bool) -> None:
        """is_governed: whether the gate decides if it drafts."""
        self._state = state
        self._is_governed = is_governed
        self._max_draft_tokens = request.num_speculative_tokens
        self.proposer: ProposerState | None = None
        """What is known of its drafter on the replica where it decodes; None: it does not decode yet."""
        self._num_rows = 1.0
        self._k = 0
        """Draft tokens that it asks for."""

    def take(self, result: RoundResult, drafter: str) -> None:
        """Count it where it is now, with those of its drafter."""
        if not result.num_output_tokens or not result.replica_id:
            return
        # A replica that was lost and is there again has a new state.
        proposer = self._state.proposer(result.replica_id, drafter)
        replica = proposer.replica
        replica.num_others = result.num_other_sequences
        replica.table = proposer.costs.table = result.step_table
        if proposer is not self.proposer:
            self.leave()
            self.proposer = proposer
            self._count(Decoding(1, 1.0))
            replica.draft_limits[self._max_draft_tokens] += 1

    def note(self, decision: Decision) -> None:
        """The next round does this."""
        state, k = self._state, decision.num_draft_tokens
        state.num_decisions[decision.reason] += 1
        state.num_rounds_by_k[k] += 1
        if decision.reason not in (Reason.FIRST_TOKEN, Reason.LAST_TOKEN):
            state.latest_reason = decision.reason
        self._compute(self.proposer.num_rows(k) if k and self.proposer else 1.0, k)

    def row_price(self, drafter: ModelInfo, max_nodes: int) -> float:
        """What a row of the target's step costs each sequence, in tokens of plain decoding, on average up to trees of
        max_nodes for all of them. 0.0: it is not known, or that drafter gives no trees by confidence."""
        kind = DRAFTERS.get(drafter.proposer)
        if self.proposer is None or kind is None or not kind.gives_trees or kind.needs is Needs.TEXT:
            return 0.0
        table, num_sequences = self.proposer.replica.table, self.proposer.replica.num_decoding
        plain_s = table.step_s(num_sequences)
        if plain_s <= 0:
            return 0.0
        longer = table.step_s(num_sequences * (1 + max_nodes)) / plain_s - 1
        return min(max(longer / max_nodes, _LEAST_PRICE), 1.0)

    def leave(self) -> None:
        """Idempotent."""
        self._compute(0.0, 0)
        if self.proposer is not None:
            self._count(Decoding(-1))
            self.proposer.replica.draft_limits[self._max_draft_tokens] -= 1
        self.proposer = None
        self._num_rows = 1.0

    def _compute(self, num_rows: float, k: int) -> None:
        if self.proposer is not None:
            self._count(Decoding(0, num_rows - self._num_rows, (k > 0) - (self._k > 0), k - self._k))
            self._num_rows = num_rows
            self._k = k

    def _count(self, change: Decoding) -> None:
        assert self.proposer is not None
        self.proposer.replica.own.add(change)
        if self._is_governed:
            self.proposer.governed.add(change)
