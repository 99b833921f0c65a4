"""How many tokens to draft next, for one request: a look at the replica's plan, explained with a reason.

K is what maximises expected output tokens per second (2211.17192, equation 1, with acceptance by position) if all
sequences that decode on the replica did the same: under load a draft token costs everybody time, and a sequence that
looked only at itself would always draft (2406.14066). Pure: no I/O and no clock.
"""

from __future__ import annotations

from collections import Counter

from orchestrator.control.acceptance import RequestAcceptance
from orchestrator.control.decision import Decision, RoundResult
from orchestrator.control.drafter_choice import AnswerTime
from orchestrator.control.reasons import Limitation, Reason, permanent_reason
from orchestrator.control.replica_state import (
    FIRST_PROBE_TOKENS,
    SAME_SPEED,
    SHARED_STEPS,
    ControlState,
    ProposerState,
    ReplicaPlan,
    ReplicaState,
)
from orchestrator.control.sequence_load import SequenceLoad
from orchestrator.requests.request import GenerationRequest

_OWN_MARGIN = 0.15
"""Where a request's own drafts are this much faster or slower than plain decoding, they decide for it, whatever all
others do."""
_LONG_RUN_SEQUENCES = 32
"""A plain run is num_sequences / 32 times as long, where that is more than 1."""
_LAST_PROBE_TOKENS = 1024
"""The most tokens between two probes; each probe that fails doubles the distance."""


class Controller:
    """Decides for one request. Close it when the request ends."""

    def __init__(self, request: GenerationRequest, state: ControlState) -> None:
        """state: what all requests of the orchestrator share."""
        self._state = state
        self._mode = request.speculation.mode
        is_usual = self._mode == "auto" or not request.says_mode
        self._is_limited = state.config.limits_batch_size and is_usual
        """Whether operators' rules by batch size hold for it."""
        self._proposer_name = request.speculation.proposer
        self._drafter = ""
        """Who drafts: the proposer, or its stand-in. What is learnt is learnt of that one alone."""
        self._max_draft_tokens = request.num_speculative_tokens
        self._is_lossy = request.sampling.acceptance.is_lossy
        self._is_typical = is_usual and not self._is_lossy
        """Whether its speed says how fast others' answers are with its drafter."""
        self._reason = permanent_reason(request, state.config)
        self.limitation = Limitation(self._reason)
        self.load = SequenceLoad(state, request, is_governed=self._mode == "auto" and not self._reason)
        self.num_rounds_by_k: Counter[int] = Counter()
        """Rounds by the draft tokens that they asked for; 0: plain runs."""
        self._kind = request.kind
        self._last_s = 0.0
        self._time = AnswerTime(self._kind, self._proposer_name)
        self._plan: ReplicaPlan | None = None
        self._k = 0
        """This request's own best K under the plan."""
        self._is_on = False
        """Whether this request speculates under the plan."""
        self._empty_run_tokens = 1
        """Plain tokens where the drafter has no idea: doubled each time, back to 1 when a draft token is accepted.
        Asking again costs a round trip in which the target waits."""
        self._probe_k = 0
        """Draft tokens of the probe under way; 0: there is none."""
        self._num_allowed_tokens = 0
        """Output tokens of the whole answer, at most; known from the first decision on."""
        # One in the target follows every sequence, and a lookup the text: they have no start to repay.
        starts_drafter = self._mode == "auto" and self._proposer_name == "draft"
        median, least = state.answer_lengths.median(self._kind), state.config.min_output_tokens
        self._is_short = starts_drafter and median < least
        """Whether the drafter is started only once the answer is longer than those of its kind usually are."""
        self._num_first_tokens = max(state.config.first_chunk_tokens, least if self._is_short else 0)
        """Tokens that are decoded plainly before speculation begins."""
        self._follow_drafter(self._proposer_name)

    @property
    def will_draft_soon(self) -> bool:
        """Whether it is worth while that the drafter reads the prompt now."""
        return not self._reason and not self._is_short and (self._mode == "on" or self._state.is_open(self._drafter))

    def decide(self, result: RoundResult) -> Decision:
        """The decision for the next round. result: the last round's, from which it learns."""
        if not result.num_output_tokens:
            self._num_allowed_tokens = result.num_remaining_tokens
        self._learn(result)
        if self._reason:
            decision = Decision(0, result.num_remaining_tokens, self._reason)
        elif result.drafter_absence:
            num_tokens = min(self._run_tokens, result.num_remaining_tokens)
            reason = Reason.DRAFT_POOL_SATURATED if result.is_drafter_saturated else Reason.NO_DRAFTER
            decision = Decision(0, num_tokens, reason, result.drafter_absence)
        else:
            decision = self._decide(result)
        self.limitation.note(decision.reason, decision.details)
        self.load.note(decision)
        self.num_rounds_by_k[decision.num_draft_tokens] += 1
        return decision

    def begin(self, result: RoundResult) -> None:
        """The first token is there: from now on the request is part of its replica's load, however long its run is."""
        self.load.take(result, self._drafter)

    def end(self, result: RoundResult) -> None:
        """The last round. A last verification is not learnt from: the answer's end may cut off what was accepted."""
        if self._num_allowed_tokens >= self._state.config.min_output_tokens:  # else it says nothing of longer ones
            self._state.answer_lengths.add(self._kind, result.num_output_tokens)
        if not result.num_draft_tokens:
            self._learn(result)

    def resume(self, now_s: float) -> None:
        """What was done since the last round, until now, is no part of the next one."""
        self._last_s = now_s

    def close(self) -> None:
        """The request has ended. Idempotent."""
        self.load.leave()
        self._time.end()

    def _follow_drafter(self, name: str) -> bool:
        """Whether another drafts from now on."""
        if name == self._drafter:
            return False
        self._drafter = name
        self._shared = self._state.acceptance[name]
        self.acceptance = RequestAcceptance(self._shared, is_lossy=self._is_lossy)
        self._plan = None
        return True

    def _learn(self, result: RoundResult) -> None:
        elapsed_s, self._last_s = result.elapsed_s(self._last_s), result.now_s
        says_nothing = self._follow_drafter(result.stand_in or self._proposer_name) or result.spared_drafter
        if says_nothing:
            self._probe_k = 0
        self.load.take(result, self._drafter)
        if result.is_empty_proposal:
            self._empty_run_tokens = min(2 * self._empty_run_tokens, self._state.config.decode_run_tokens)
        if result.draft_problem:
            self.limitation.note(Reason.DRAFTER_FAILED, result.draft_problem)
        if self.load.proposer:
            self._learn_speed(self.load.proposer.replica, result, elapsed_s)
            if not says_nothing:
                self._learn_round(self.load.proposer, result, elapsed_s)

    def _learn_speed(self, replica: ReplicaState, result: RoundResult, elapsed_s: float) -> None:
        """What the answer takes, and what it would take plainly."""
        if result.num_output_tokens == result.num_committed_tokens:
            # A first run holds the prefill.
            elapsed_s = result.num_counted_tokens * result.plain_token_s if result.is_measurable_run else 0.0
        if elapsed_s and replica.table.rows and not self._reason and self._is_typical:
            plain_s = result.num_counted_tokens * replica.table.step_s(replica.load(result.now_s))
            self._time.add(replica.choice, plain_s=plain_s, seconds=elapsed_s)

    def _learn_round(self, proposer: ProposerState, result: RoundResult, elapsed_s: float) -> None:
        proposer.num_plain_tokens += result.num_plain_tokens
        is_empty, is_open = result.is_empty_proposal, self._plan is None or self._plan.is_open
        # It stands for all that was not drafted meanwhile.
        is_probe = self._probe_k > 0 and not is_open
        # Where only those draft whom it helps, their answers are better than everybody's; and so are lossy ones.
        is_shared = (is_open or is_probe) and not self._is_lossy
        if result.num_requested_tokens and not result.draft_problem and is_shared:
            self._shared.add_proposal(result.num_plain_tokens if is_empty else 0, is_probe=is_probe)
        if result.num_draft_tokens:
            depth = result.draft_depth or result.num_draft_tokens
            self.acceptance.add(depth, result.num_accepted_tokens, is_probe=is_probe, is_shared=is_shared)
            self._follow_draft(proposer, result, depth)
        elif is_empty:
            self._end_probe(proposer)
        # A first run holds the prefill.
        if not elapsed_s or result.num_output_tokens <= result.num_committed_tokens or not result.step_table.rows:
            return
        if result.num_requested_tokens:
            proposer.note_speed(result.now_s, result.num_counted_tokens, elapsed_s)
        if self._mode == "auto":
            self._learn_costs(proposer, result, elapsed_s)

    def _follow_draft(self, proposer: ProposerState, result: RoundResult, depth: int) -> None:
        """What the draft that was verified says of the next ones."""
        self._shared.add_length(result.num_requested_tokens or depth, result.num_draft_tokens)
        if result.num_accepted_tokens:
            self._empty_run_tokens = 1
        if self._probe_k and result.num_accepted_tokens >= depth:
            self._probe_k = min(2 * self._probe_k, self._max_draft_tokens)
        else:
            self._end_probe(proposer)

    def _end_probe(self, proposer: ProposerState) -> None:
        """If there is one, it failed or found nothing: the next one, of any request, waits twice as long."""
        if self._probe_k:
            self._probe_k = 0
            proposer.probe_tokens = min(2 * proposer.probe_tokens, _LAST_PROBE_TOKENS)

    def _learn_costs(self, proposer: ProposerState, result: RoundResult, elapsed_s: float) -> None:
        costs, gate, replica = proposer.costs, proposer.gate, proposer.replica
        load = replica.load(result.now_s)
        if not replica.table.rows or not gate.is_settled(result.now_s - elapsed_s):
            return
        rows, plain_s = replica.rows(load), proposer.mixture.plain_s
        is_draft_wanted = result.num_requested_tokens > 0
        if gate.is_open:
            gate.add(result.num_counted_tokens - proposer.loss * elapsed_s / plain_s, plain_s, elapsed_s)
        if is_draft_wanted and gate.is_open:
            lost_s = elapsed_s - result.num_plain_tokens * plain_s if result.draft_problem else 0.0
            costs.add_lost(load, max(0.0, lost_s))
            if result.draft_problem:
                return  # what it took is no part of a round
            if result.num_steps:
                costs.add_interval(load, rows, elapsed_s / result.num_steps)
            if result.is_empty_proposal:
                costs.add_empty(load, rows, result.num_plain_tokens, elapsed_s)
            elif not result.num_plain_tokens:
                draft_s = min(result.propose_s, result.draft_compute_s)
                costs.add_round(load, result.num_requested_tokens, rows, elapsed_s, draft_s)
        elif not is_draft_wanted and result.is_measurable_run and not gate.is_open:
            costs.add_plain(load, proposer.mixture.plain_rows, result.plain_token_s)

    def _decide(self, result: RoundResult) -> Decision:
        num_remaining = result.num_remaining_tokens
        if num_first := self._num_first_left(result):
            if self._mode == "auto" and not self._state.is_open(self._drafter):
                # A draft is unlikely to follow: behind a shorter run the target would wait a round trip for the next.
                num_first = max(num_first, min(self._run_tokens, num_remaining))
            return Decision(0, num_first, Reason.SHORT_OUTPUT if self._is_short else Reason.FIRST_TOKEN)
        # The target adds a token of its own to what it accepts.
        limit = min(self._max_draft_tokens, num_remaining - 1)
        if limit <= 0:
            return Decision(0, 1, Reason.LAST_TOKEN)
        run_tokens = min(self._run_tokens, num_remaining)
        if self._mode == "on":
            limit = self._limit(self.load.proposer, result.now_s, limit)
            if not limit:
                return Decision(0, run_tokens, Reason.BATCH_SIZE)
            return Decision(limit, min(self._empty_run_tokens, num_remaining), Reason.REQUESTED)
        if self.load.proposer is None or not result.step_table.rows:
            return Decision(0, run_tokens, Reason.MEASURING)
        return self._by_plan(self.load.proposer, result, limit, run_tokens)

    def _limit(self, proposer: ProposerState | None, now_s: float, limit: int) -> int:
        """`limit`, or less where an operator's rule for the batch size says so; 0: no drafts."""
        if not self._is_limited:
            return limit
        if proposer is None:
            return self._state.max_draft_tokens(now_s, limit)
        return proposer.replica.max_draft_tokens(proposer.replica.load(now_s), limit, self._state.config)

    def _num_first_left(self, result: RoundResult) -> int:
        """Tokens of the first ones that are not under way."""
        num_begun = self._num_allowed_tokens - result.num_remaining_tokens
        return min(max(0, self._num_first_tokens - num_begun), result.num_remaining_tokens)

    @property
    def _run_tokens(self) -> int:
        """Length of a run without drafts: longer under load, for among many sequences one decides all the time."""
        num_own = self.load.proposer.replica.own.num if self.load.proposer else 0
        return self._state.config.decode_run_tokens * max(1, num_own // _LONG_RUN_SEQUENCES)

    def _by_plan(self, proposer: ProposerState, result: RoundResult, limit: int, run_tokens: int) -> Decision:
        plan = proposer.plan(result.now_s, self._state.config)
        if plan is not self._plan:
            self._follow(plan, proposer)
        if self._is_on:
            self._probe_k = 0
            if plan.is_open:
                proposer.probe_tokens = FIRST_PROBE_TOKENS
            num_run_tokens = min(self._empty_run_tokens, result.num_remaining_tokens)
            return Decision(min(self._k, limit), num_run_tokens, Reason.FASTEST)
        reason = Reason.ACCEPTANCE if plan.is_open else plan.reason
        if plan.num_draft_tokens and plan.probabilities[0] < self._state.config.min_acceptance_rate:
            reason = Reason.ACCEPTANCE_FLOOR
        is_due = self._probe_k or proposer.num_plain_tokens >= proposer.probe_tokens * plan.load
        if is_due and reason in (Reason.ACCEPTANCE, Reason.ACCEPTANCE_FLOOR):
            self._probe_k = self._probe_k or 2
            proposer.num_plain_tokens = 0
            return Decision(min(self._probe_k, limit, plan.seconds[-1][0]), 1, Reason.PROBE)
        return Decision(0, run_tokens, reason)

    def _follow(self, plan: ReplicaPlan, proposer: ProposerState) -> None:
        """What the new plan is for this request's own drafts."""
        self._plan = plan
        own = self.acceptance.probabilities(plan.probabilities)
        gains = {k: proposer.gain(own, k, s) for k, s in plan.seconds if k <= max(1, self._max_draft_tokens)}
        best = max(gains, key=lambda k: gains[k])
        margin = SHARED_STEPS if plan.load > 1 else SAME_SPEED
        is_best = gains[best] > margin * gains.get(plan.num_draft_tokens, 0.0)
        self._k = best if is_best else plan.num_draft_tokens
        gain = gains[self._k]
        if plan.is_open and (plan.is_trial or gain >= plan.gain):
            is_on = True
        elif plan.is_open:
            is_on = gain >= 1 - _OWN_MARGIN
        else:
            is_refused = plan.is_guarded or plan.reason in (Reason.MEASURING, Reason.BATCH_SIZE, Reason.LOAD)
            is_on = not is_refused and gain >= 1 + _OWN_MARGIN
        self._is_on = is_on and own[0] >= self._state.config.min_acceptance_rate
