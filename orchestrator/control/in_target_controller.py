"""Decisions for a request whose drafter is in the target: whole runs, drafted or plain.

How far to draft in each step is decided there, step by step; here only whether it pays, by the same gate.
"""

from __future__ import annotations

from orchestrator.control.controller import Controller
from orchestrator.control.decision import MEASURABLE_TOKENS, Decision, RoundResult
from orchestrator.control.reasons import Reason
from orchestrator.control.replica_state import ProposerState


class InTargetController(Controller):
    """As Controller; learns what a token takes in drafted and in plain runs. Of a drafted run the first step has no
    draft: it is four times as long as a plain one."""

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
            costs.add_in_target(load, token_s)
            gate.add(result.num_committed_tokens, costs.plain_s(load), result.num_committed_tokens * token_s)
        elif not result.num_requested_tokens and replica.are_all_plain:
            costs.add_plain(load, token_s)

    def _decide(self, result: RoundResult) -> Decision:
        if self._mode == "on":
            return Decision(self._max_draft_tokens, result.num_remaining_tokens, Reason.REQUESTED)
        num_tokens = min(max(MEASURABLE_TOKENS, self._run_tokens), result.num_remaining_tokens)
        proposer = self._load.proposer
        if proposer is None or not result.step_table.rows:
            k = self._state.max_draft_tokens(result.now_s, self._max_draft_tokens)
            return Decision(k if self._state.is_open(self._proposer_name) else 0, num_tokens, Reason.FIRST_TOKEN)
        replica, gate, load = proposer.replica, proposer.gate, proposer.replica.load(result.now_s)
        limit = replica.max_draft_tokens(load, self._max_draft_tokens, self._state.config)
        gain = proposer.costs.in_target_gain(load) if limit else 0.0
        trial_s = 2 * num_tokens * proposer.costs.plain_s(load)
        is_open = gate.update(result.now_s, load, gain, can_pay=limit > 0, trial_s=trial_s)
        if limit and is_open:
            run = num_tokens if gate.is_trial else min(4 * num_tokens, result.num_remaining_tokens)
            return Decision(limit, run, Reason.FASTEST)
        if limit and gate.is_trial:
            return Decision(0, num_tokens, Reason.MEASURING)
        details = f"measured: plain decoding is faster ({gain:.2f} of its speed with drafts)" if limit else ""
        return Decision(0, num_tokens, Reason.ACCEPTANCE if limit else Reason.BATCH_SIZE, details)
