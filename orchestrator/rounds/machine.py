"""One request from its first token to its last, without I/O, as h11 does it for HTTP. This page explains the system.

A drafter guesses the next few tokens, the target decides in one step which of them stand and adds one of its own, and
the controller learns from every round how far to guess. The machine gets events with their time, and answers with
commands; any interleaving of events gives the target's own text. What can go wrong is handled in the objects called
here: a drafter answers late, empty or wrong without harm, and the target goes on when its replica is lost.

    decide -> ask the drafter -> ask the target -> verdicts -> commit -> decide ...
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from msgspec.structs import replace

from orchestrator.answers.output import OutputChunk
from orchestrator.answers.sequence import Sequence
from orchestrator.control.controller import Controller
from orchestrator.control.decision import Decision, RoundResult
from orchestrator.control.reasons import LOOKUP_GOES_ON, Reason
from orchestrator.rounds.commands import AcceptedStep, Arrived, Close, Command, Event, StepWritten
from orchestrator.rounds.draft import NO_DRAFT, Draft
from orchestrator.rounds.drafter_clients.drafter_client import DrafterClient
from orchestrator.rounds.round import Round
from orchestrator.rounds.round_log import RoundLog
from orchestrator.rounds.steps import NoSteps
from orchestrator.rounds.target import Target
from pilotfish.messages import Predrafted, Verdict
from pilotfish.speculation.lookup.index import needs_draft_probs
from pilotfish.step_table import StepTable
from pilotfish.types import TreeRequest

_STEP = Decision(0, 0, Reason.REQUESTED)


class Progress(NamedTuple):
    """What an event led to."""

    commands: list[Command]
    """Commands to carry out in this order."""
    chunks: list[OutputChunk]
    """Newly committed tokens for the client."""


class RoundMachine:
    """See the module."""

    def __init__(
        self,
        sequence: Sequence,
        controller: Controller,
        drafter: DrafterClient,
        target: Target,
        out: list[Command],
        *,
        credit_tokens: int,
        tree: TreeRequest | None = None,
        log: RoundLog | None = None,
        steps: NoSteps | None = None,
    ) -> None:
        """out: the list that drafter and target append their commands to as well.

        credit_tokens: the most of a plain run that is asked for and not committed. tree: how drafts may branch that the
        target makes for itself. log: keeps rounds for the trace. steps: where a step of reasoning is drafted.
        """
        self.sequence = sequence
        self.controller = controller
        self.drafter = drafter
        self.target = target
        self.steps = steps or NoSteps()
        self.awaits_step = False
        """Whether a step of reasoning is to be written and judged next; answered by StepWritten."""
        self._out = out
        self._chunks: list[OutputChunk] = []
        self._credit_tokens = credit_tokens
        self._tree = tree
        self._log = log or RoundLog()
        request = sequence.request
        self._has_grammar = request.sampling.grammar is not None and request.speculates
        self._decision = _STEP

    @property
    def num_idle_tokens(self) -> int:
        """Plain tokens to commit together: until they have come there is nothing to decide."""
        asked = self.target.round
        if asked is None or self.drafter.has_lookup or self.steps.are_possible:
            return 0
        return asked.num_idle_tokens(self.sequence.length, self.sequence.num_remaining_tokens)

    def start(self, now_s: float) -> Progress:
        """The first commands."""
        sequence, controller = self.sequence, self.controller
        first = RoundResult(
            now_s=now_s,
            num_remaining_tokens=sequence.num_remaining_tokens,
            drafter_absence=self.drafter.unavailable_reason,
            is_drafter_saturated=self.drafter.is_saturated,
            stand_in=self.drafter.stand_in,
        )
        self._decision = controller.decide(first)
        if controller.will_draft_soon:
            self.drafter.prepare(sequence, now_s)
        self._begin(now_s)
        return self._progress()

    def on_event(self, event: Event, now_s: float) -> Progress:
        """What follows from the event. Raises the PilotfishError that ends the request."""
        if isinstance(event, StepWritten):
            self._take_step(event.step, now_s)
            return self._progress()
        if isinstance(event, Arrived) and event.peer is self.drafter.peer and isinstance(event.message, Predrafted):
            self._hand_on(event.message)
        draft = self.drafter.hear(event, self.sequence, now_s)
        if draft is not None:
            self._verify(draft, now_s)
        verdict = self.target.hear(event, now_s)
        if verdict is not None:
            self._commit(verdict, now_s)
        return self._progress()

    def close(self) -> list[Command]:
        """What frees everything. Idempotent."""
        self.controller.close()
        self.drafter.close()
        self.target.close()
        commands = self._progress().commands
        if not self.sequence.is_finished:
            return commands
        return [replace(each, is_finished=True) if isinstance(each, Close) else each for each in commands]

    def _progress(self) -> Progress:
        progress = Progress(self._out[:], self._chunks)
        self._out.clear()
        self._chunks = []
        return progress

    def _begin(self, now_s: float) -> None:
        """The round that was decided: its draft first."""
        self._log.begin(self._decision, now_s)
        num_tokens = self._decision.num_draft_tokens
        draft: Draft | None = NO_DRAFT
        if num_tokens and not self.drafter.is_in_target:
            draft = self.drafter.ask(self.sequence, num_tokens, now_s)
        if draft is not None:
            self._verify(draft, now_s)

    def _verify(self, draft: Draft, now_s: float) -> None:
        """Have the target verify the draft, or decode a run where it is empty."""
        decision = self._decision
        asked = Round(
            self.sequence.length,
            decision.num_decode_tokens,
            draft=draft,
            credit_tokens=self._credit_tokens,
            num_in_target_drafts=decision.num_draft_tokens if self.drafter.is_in_target else 0,
            tree=self._tree,
            # Under an operator's rule for the batch size nothing is drafted.
            takes_forced=self._has_grammar and decision.reason is not Reason.BATCH_SIZE,
        )
        self.target.ask(asked, now_s)

    def _hand_on(self, drafts: Predrafted) -> None:
        """Hand drafts on to the target: while it verifies what they follow, it can go on with them by itself."""
        # Distributions are too large to be sent on in every round.
        has_probs = needs_draft_probs(self.sequence.request.sampling)
        if drafts.base_length == self.sequence.length and not has_probs:
            self.target.hand_on(drafts)

    def _commit(self, verdict: Verdict, now_s: float) -> None:
        sequence, controller = self.sequence, self.controller
        chunk = sequence.commit(verdict)
        self._chunks.append(chunk)
        if len(chunk.token_ids) == sequence.num_output_tokens:  # the first
            controller.begin(self._result(verdict))
        asked = self.target.round
        assert asked is not None
        self._log.add(asked.draft, verdict, now_s)
        if not verdict.is_plain_or_forced and not asked.spared_drafter:
            self._note_acceptance(asked.draft, verdict, now_s)
        if sequence.is_finished:
            controller.end(self._result(verdict))
            return
        is_step_due = self.steps.is_due(sequence) and self.target.can_move
        is_welcome = self.target.is_welcome
        if not asked.is_over(sequence.length) and not is_step_due and is_welcome:
            self._look_ahead(asked, verdict)
            return
        asked.end_at(sequence.length)
        self._decision = asked.successor or controller.decide(self._result(verdict))
        if is_step_due:
            self.target.close()  # judging takes a place as well
            self._write_step(now_s)
        elif not is_welcome:
            self.target.leave()  # nothing more of the run is wanted from there
            self._begin(now_s)
        elif verdict.num_next_draft_tokens:
            self._follow(now_s)
        else:
            self._begin(now_s)

    def _note_acceptance(self, draft: Draft, verdict: Verdict, now_s: float) -> None:
        version = verdict.drafter_version or draft.drafter_version
        # A grammar's drafts, which are right nearly always, must not count as the drafter's.
        by_target = self.drafter.is_in_target and not verdict.num_grammar_tokens
        depth = verdict.depth if by_target else 0
        self.controller.acceptance.note(version, verdict.num_accepted_drafts, now_s, depth)

    def _follow(self, now_s: float) -> None:
        """The target has begun the next round by itself, with the predraft that it was handed."""
        draft = self.drafter.handed_on(self.sequence, self._decision.num_draft_tokens, now_s)
        self._decision = dataclasses.replace(self._decision, num_draft_tokens=len(draft.token_ids))
        self._log.begin(self._decision, now_s)
        self.target.follow(Round(self.sequence.length, draft=draft))

    def _look_ahead(self, run: Round, verdict: Verdict) -> None:
        """End a run with a draft, or extend it before it ends."""
        length, decision = self.sequence.length, self._decision
        had_no_idea = decision.num_draft_tokens > 0 and not self.drafter.is_in_target
        if (had_no_idea or decision.reason in LOOKUP_GOES_ON) and run.takes_drafts(self.sequence):
            # The drafter may have an idea by now.
            self.target.cut_in(self.drafter.glance(self.sequence, decision.num_draft_tokens))
        if had_no_idea or run.awaits_cut_in(self.sequence):
            return
        if run.is_running_out(length, self.sequence.num_remaining_tokens):
            following = self.controller.decide(self._result(verdict))
            if following.num_draft_tokens == decision.num_draft_tokens:
                self._decision = following
                self.target.extend(following.num_decode_tokens)
            else:
                run.successor = following

    def _write_step(self, now_s: float) -> None:
        self._log.begin(_STEP, now_s)
        self.awaits_step = True

    def _take_step(self, step: AcceptedStep | None, now_s: float) -> None:
        """A drafter's step, which stands; None: the target writes the next one."""
        self.awaits_step = False
        if step is None:
            self.controller.resume(now_s)
            self._begin(now_s)
            return
        self._log.add(step.draft, step.verdict, now_s)
        self._chunks.append(self.sequence.commit(step.verdict, is_step=True))
        if not self.sequence.is_finished:
            self._write_step(now_s)

    def _result(self, last_verdict: Verdict) -> RoundResult:
        """The round so far, for the controller."""
        sequence, asked, replica = self.sequence, self.target.round, self.target.replica
        assert asked is not None
        draft = asked.draft
        # A draft that a grammar's replaced altogether counts as verified, with nothing accepted.
        num_drafts = last_verdict.num_draft_tokens - last_verdict.num_grammar_tokens or len(draft.token_ids)
        return RoundResult(
            now_s=self.target.last.at_s,
            num_output_tokens=sequence.num_output_tokens,
            num_remaining_tokens=sequence.num_remaining_tokens - asked.num_coming_tokens(sequence.length),
            # A deferred draft was not asked for: the drafter has not failed to answer.
            num_requested_tokens=0 if draft.is_deferred else self._decision.num_draft_tokens,
            num_draft_tokens=num_drafts,
            num_accepted_tokens=last_verdict.num_accepted_drafts,
            draft_depth=last_verdict.draft_depth,
            num_plain_tokens=asked.num_plain_tokens,
            num_committed_tokens=sequence.length - asked.base_length,
            num_forced_tokens=asked.num_forced_tokens,
            propose_s=draft.elapsed_s,
            draft_compute_s=draft.compute_s,
            target_s=asked.timing.elapsed_s,
            prefill_s=asked.timing.prefill_s,
            plain_token_s=asked.timing.plain_token_s,
            draft_problem=draft.problem,
            spared_drafter=asked.spared_drafter,
            drafter_absence=self.drafter.unavailable_reason,
            is_drafter_saturated=self.drafter.is_saturated,
            stand_in=self.drafter.stand_in,
            replica_id="" if replica is None else replica.replica_id,
            step_table=StepTable() if replica is None else replica.step_table,
            num_steps=asked.timing.num_steps,
            num_other_sequences=0 if replica is None else replica.num_other_sequences,
        )
