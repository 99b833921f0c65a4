"""One request from its first token to its last. This page explains the system.

A drafter guesses the next few tokens, the target decides in one step which of them stand and adds
one of its own, and the controller learns from every round how far to guess. What can go wrong is
handled in the objects called here: the drafter answers late, empty or wrong without harm, and the
target goes on when its replica is lost.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

from orchestrator.answers.output import OutputChunk
from orchestrator.answers.sequence import Sequence
from orchestrator.control.decision import Decision, Observation
from orchestrator.controller import Controller
from orchestrator.drafting.drafter import DraftBlock, Drafter
from orchestrator.round import RemoteRound
from orchestrator.round_log import RoundLog
from orchestrator.run_controller import RunController
from orchestrator.target import RemoteTarget
from pilotfish.messages import Verdict


class Session:
    """Everything that serves one request."""

    def __init__(
        self,
        sequence: Sequence,
        controller: Controller | RunController,
        drafter: Drafter,
        target: RemoteTarget,
        rounds: RoundLog | None = None,
    ) -> None:
        """rounds: hears of every round, for the trace."""
        self.sequence = sequence
        self.controller = controller
        self.drafter = drafter
        self.target = target
        self.rounds = rounds or RoundLog()

    async def run(self) -> AsyncGenerator[OutputChunk, None]:
        """The answer, chunk by chunk. Ending the iteration early frees everything: close it with `aclosing`."""
        sequence, controller, drafter, target = self.sequence, self.controller, self.drafter, self.target
        verdicts: RemoteRound | None = None
        """Of the round that the controller does not know of yet."""
        try:
            decision = controller.next_k(self._first_observation())
            if controller.will_draft_soon:
                drafter.prepare(sequence)
            while not sequence.is_finished:
                self.rounds.begin(decision)
                draft = DraftBlock()
                if decision.num_draft_tokens:
                    draft = await drafter.propose(sequence, decision.num_draft_tokens)
                is_run = decision.num_draft_tokens == draft.num_self_drafted
                is_verified = draft.promises(decision.min_accepted_tokens)
                if not is_run:
                    controller.note_draft(len(draft.token_ids) if is_verified else 0)
                if is_verified:
                    verdicts = target.verify(sequence, draft, meanwhile=controller.catch_up)
                else:
                    verdicts = target.decode(
                        sequence, decision.num_decode_tokens, draft.num_self_drafted, awaits_drafts=not is_run
                    )
                async for verdict in verdicts:
                    chunk = sequence.commit(verdict)
                    self.rounds.add(draft, verdict)
                    if not is_run and verdicts.takes_drafts:
                        verdicts.cut_in(drafter.glance(sequence, decision.num_draft_tokens))
                    elif is_run and verdicts.is_running_out:
                        following = controller.next_k(self._observe(decision, draft, verdict, verdicts))
                        decision = verdicts.go_on(decision, following)
                    yield chunk
                if not sequence.is_finished:
                    decision = verdicts.successor or controller.next_k(
                        self._observe(decision, draft, verdict, verdicts)
                    )
                    verdicts = None
            if verdicts is not None and verdicts.successor is None:
                controller.end(self._observe(decision, draft, verdict, verdicts))
        finally:
            controller.close(time.monotonic(), 0 if verdicts is None else verdicts.num_decoded_tokens)
            drafter.close()
            target.close()

    def _first_observation(self) -> Observation:
        return Observation(
            now_s=time.monotonic(),
            num_remaining_tokens=self.sequence.num_remaining_tokens,
            drafter_absence=self.drafter.unavailable_reason,
        )

    def _observe(
        self, decision: Decision, draft: DraftBlock, last_verdict: Verdict, verdicts: RemoteRound
    ) -> Observation:
        link = self.target.link
        return Observation(
            now_s=verdicts.last_arrival_s,
            num_output_tokens=self.sequence.num_output_tokens,
            num_remaining_tokens=self.sequence.num_remaining_tokens - verdicts.num_coming_tokens,
            num_requested_tokens=decision.num_draft_tokens,
            num_draft_tokens=last_verdict.num_draft_tokens,
            num_accepted_tokens=last_verdict.num_accepted_tokens,
            draft_depth=last_verdict.draft_depth,
            num_decoded_tokens=verdicts.num_decoded_tokens,
            num_committed_tokens=self.sequence.length - verdicts.base_length,
            propose_s=draft.elapsed_s,
            propose_compute_s=draft.compute_s,
            step_s=verdicts.elapsed_s,
            token_s=verdicts.token_s,
            prefill_s=verdicts.prefill_s,
            round_prefill_s=verdicts.round_prefill_s,
            draft_problem=draft.problem,
            is_draft_deferred=draft.is_deferred,
            drafter_absence=self.drafter.unavailable_reason,
            is_drafter_saturated=self.drafter.is_saturated,
            replica_id="" if link is None or not link.is_connected else link.replica_id,
            target_load=None if link is None else link.load,
            num_other_sequences=0 if link is None else link.num_other_sequences,
        )
