"""One request from its first token to its last. This page explains the system.

A drafter guesses the next few tokens, the target decides in one step which of them stand and adds
one of its own, and the controller learns from every round how far to guess. What can go wrong is
handled in the objects called here: the drafter answers late, empty or wrong without harm, and the
target goes on when its replica is lost. Where a request asks for it, a draft model also writes whole steps of reasoning
(step_rounds.py), between these rounds.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import AsyncGenerator

from orchestrator.answers.output import OutputChunk
from orchestrator.answers.sequence import Sequence
from orchestrator.control.controller import Controller
from orchestrator.control.decision import Decision, RoundResult
from orchestrator.control.reasons import Reason
from orchestrator.drafting.drafter import DraftBlock, Drafter
from orchestrator.request_telemetry.round_log import RoundLog
from orchestrator.round import RemoteRound
from orchestrator.step_rounds import NoSteps
from orchestrator.target import RemoteTarget
from pilotfish.messages import Verdict
from pilotfish.speculation.statistics import SpeculationStats
from pilotfish.step_table import StepTable

_STEP = Decision(0, 0, Reason.REQUESTED)


class Session:
    """Everything that serves one request."""

    def __init__(
        self,
        sequence: Sequence,
        controller: Controller,
        drafter: Drafter,
        target: RemoteTarget,
        rounds: RoundLog | None = None,
        steps: NoSteps | None = None,
    ) -> None:
        """rounds: hears of every round, for the trace. steps: of reasoning, beside the rounds over tokens."""
        self.sequence = sequence
        self.controller = controller
        self.drafter = drafter
        self.target = target
        self.rounds = rounds or RoundLog()
        self.steps = steps or NoSteps()

    @property
    def speculation_stats(self) -> SpeculationStats:
        """How speculation went so far."""
        counted, limitation = self.sequence.statistics, self.controller.limitation
        limitation = self.steps.limitation if self.steps.limitation.reason else limitation
        return SpeculationStats(
            num_rounds=counted.num_rounds,
            num_draft_tokens=counted.num_draft_tokens,
            num_accepted_tokens=counted.num_accepted_tokens,
            num_plain_tokens=self.sequence.num_plain_tokens,
            mean_acceptance_length=counted.mean_acceptance_length,
            acceptance_per_position=counted.acceptance_per_position,
            num_rounds_by_draft_tokens=dict(self.controller.num_rounds_by_k),
            num_missed_deadlines=self.drafter.num_missed_deadlines,
            reason=limitation.text,
            reason_id=limitation.reason or "",
            num_steps=self.steps.num_steps,
            num_accepted_steps=self.steps.num_accepted_steps,
            num_step_tokens=self.sequence.num_step_tokens,
        )

    async def run(self) -> AsyncGenerator[OutputChunk, None]:
        """The answer, chunk by chunk. Ending the iteration early frees everything: close it with `aclosing`."""
        sequence, controller, drafter, target = self.sequence, self.controller, self.drafter, self.target
        steps = self.steps
        try:
            decision = controller.decide(self._first_result())
            steps.prepare(sequence)
            if controller.will_draft_soon:
                drafter.prepare(sequence)
            while not sequence.is_finished:
                self.rounds.begin(decision)
                decision, draft = await self._draft(decision)
                verdicts = self._verdicts(decision, draft)
                async for verdict in verdicts:
                    chunk = sequence.commit(verdict)
                    if len(chunk.token_ids) == sequence.num_output_tokens:  # the first
                        controller.begin(self._result(decision, draft, verdict, verdicts))
                    self.rounds.add(draft, verdict)
                    if target.should_leave or self._is_step_due:
                        verdicts.leave()
                    decision = self._look_ahead(decision, draft, verdict, verdicts)
                    yield chunk
                if verdicts.successor is not None:
                    decision = verdicts.successor
                elif sequence.finish_reason is None:
                    decision = controller.decide(self._result(decision, draft, verdict, verdicts))
                else:
                    controller.end(self._result(decision, draft, verdict, verdicts))
                if self._is_step_due:
                    target.close()  # judging takes a place as well
                    self.rounds.begin(_STEP)
                    while (step := await steps.next(sequence)) is not None:
                        self.rounds.add(step.draft, step.verdict)
                        yield sequence.commit(step.verdict, is_step=True)
                        self.rounds.begin(_STEP)
                    controller.resume(time.monotonic())
        finally:
            controller.close()
            drafter.close()
            steps.close()
            target.close()

    @property
    def _is_step_due(self) -> bool:
        return self.target.can_move and self.steps.is_due(self.sequence)

    async def _draft(self, decision: Decision) -> tuple[Decision, DraftBlock]:
        """What the round verifies; where the target has gone on by itself that is decided."""
        if self.target.goes_on:
            draft = self.drafter.handed_on(self.sequence, decision.num_draft_tokens)
            return dataclasses.replace(decision, num_draft_tokens=len(draft.token_ids)), draft
        if decision.num_draft_tokens:
            return decision, await self.drafter.propose(self.sequence, decision.num_draft_tokens)
        return decision, DraftBlock()

    def _verdicts(self, decision: Decision, draft: DraftBlock) -> RemoteRound:
        if draft.token_ids or self.target.goes_on:
            return self.target.verify(self.sequence, draft)
        return self.target.decode(self.sequence, decision.num_decode_tokens, draft.num_in_target_drafts)

    def _look_ahead(self, decision: Decision, draft: DraftBlock, verdict: Verdict, verdicts: RemoteRound) -> Decision:
        """End a run with a draft, or extend it before it ends; the decision that holds now."""
        is_run = decision.num_draft_tokens == draft.num_in_target_drafts
        if not is_run and verdicts.takes_drafts:
            verdicts.cut_in(self.drafter.glance(self.sequence, decision.num_draft_tokens))
        elif is_run and verdicts.is_running_out:
            following = self.controller.decide(self._result(decision, draft, verdict, verdicts))
            return verdicts.go_on(decision, following)
        return decision

    def _first_result(self) -> RoundResult:
        return RoundResult(
            now_s=time.monotonic(),
            num_remaining_tokens=self.sequence.num_remaining_tokens,
            drafter_absence=self.drafter.unavailable_reason,
            is_drafter_saturated=self.drafter.is_saturated,
        )

    def _result(
        self, decision: Decision, draft: DraftBlock, last_verdict: Verdict, verdicts: RemoteRound
    ) -> RoundResult:
        link = self.target.link
        return RoundResult(
            now_s=verdicts.last_arrival_s,
            num_output_tokens=self.sequence.num_output_tokens,
            num_remaining_tokens=self.sequence.num_remaining_tokens - verdicts.num_coming_tokens,
            # One that was not asked, as what it drafts from comes with the next verdict, has not failed to answer.
            num_requested_tokens=0 if draft.is_deferred else decision.num_draft_tokens,
            num_draft_tokens=last_verdict.num_draft_tokens,
            num_accepted_tokens=last_verdict.num_accepted_tokens,
            draft_depth=last_verdict.draft_depth,
            num_plain_tokens=verdicts.num_decoded_tokens,
            num_committed_tokens=self.sequence.length - verdicts.base_length,
            propose_s=draft.elapsed_s,
            draft_compute_s=draft.compute_s,
            target_s=verdicts.elapsed_s,
            prefill_s=verdicts.round_prefill_s,
            plain_token_s=max(0.0, verdicts.token_s - verdicts.prefill_s),
            draft_problem=draft.problem,
            drafter_absence=self.drafter.unavailable_reason,
            is_drafter_saturated=self.drafter.is_saturated,
            replica_id="" if link is None or not link.is_connected else link.replica_id,
            step_table=StepTable() if link is None else link.step_table,
            num_steps=verdicts.num_steps,
            num_other_sequences=0 if link is None else link.num_other_sequences,
        )
