"""How many tokens the target drafts for itself in its steps, for one request. Pure: no I/O and no clock."""

from __future__ import annotations

from orchestrator.control.controller import Controller
from orchestrator.control.decision import MEASURABLE_TOKENS, Decision, RoundResult
from orchestrator.control.reasons import Reason
from orchestrator.control.replica_state import ProposerState


class InTargetController(Controller):
    """As Controller; learns the time of a token in drafted and in plain runs. A drafted run's first step has no draft,
    so it is four times as long as a plain run."""

    will_draft_soon = False
    """There is no drafter to prepare."""

    def _learn_round(self, proposer: ProposerState, result: RoundResult, elapsed_s: float) -> None:  # noqa: ARG002
        replica, token_s = proposer.replica, result.plain_token_s
        load, costs, gate = replica.load(result.now_s), proposer.costs, proposer.gate
        if (
            not result.is_measurable_run
            or not replica.table.rows
            or not gate.is_settled(result.now_s - result.target_s)
        ):
            return
        if result.num_requested_tokens and gate.is_open:
            costs.add_in_target(load, token_s, proposer.acceptance.num_swaps)
            proposer.note_speed(result.now_s, result.num_counted_tokens, result.num_counted_tokens * token_s)
            gate.add(result.num_counted_tokens, costs.plain_s(load, load), result.num_counted_tokens * token_s)
        elif not result.num_requested_tokens and not gate.is_open:
            costs.add_plain(load, load, token_s)

    def _decide(self, result: RoundResult) -> Decision:
        # A run's first step has no draft: a single token needs no run of its own.
        if (num_first := self._num_first_left(result)) > 1:
            return Decision(0, num_first, Reason.FIRST_TOKEN)
        proposer = self.load.proposer
        limit = self._limit(proposer, result.now_s, self._max_draft_tokens)
        num_tokens = min(max(MEASURABLE_TOKENS, self._run_tokens), result.num_remaining_tokens)
        if self._mode == "on":
            num_tokens = num_tokens if self._is_limited else result.num_remaining_tokens
            return Decision(limit, num_tokens, Reason.REQUESTED if limit else Reason.BATCH_SIZE)
        if proposer is None or not result.step_table.rows:
            return Decision(limit if self._state.is_open(self._drafter) else 0, num_tokens, Reason.FIRST_TOKEN)
        gate, load = proposer.gate, proposer.replica.load(result.now_s)
        gain = proposer.costs.in_target_gain(load) if limit else 0.0
        trial_s = 2 * num_tokens * proposer.costs.plain_s(load, load)
        is_open = gate.update(result.now_s, load, gain, can_pay=limit > 0, trial_s=trial_s)
        if limit and is_open:
            run = num_tokens if gate.is_trial else min(4 * num_tokens, result.num_remaining_tokens)
            return Decision(limit, run, Reason.FASTEST)
        if limit and gate.is_trial:
            return Decision(0, num_tokens, Reason.MEASURING)
        details = f"measured: plain decoding is faster ({gain:.2f} of its speed with drafts)" if limit else ""
        return Decision(0, num_tokens, Reason.ACCEPTANCE if limit else Reason.BATCH_SIZE, details)
