"""One request from its first token to its last, as `orchestrator.session.Session` runs it, in continuations."""

import dataclasses
import itertools
import random
from collections.abc import Callable, Generator
from typing import Any

from orchestrator.control.controller import Controller
from orchestrator.control.decision import Decision, RoundResult
from orchestrator.round import nears_end
from pilotfish.types import LoadReport
from tests.support.simulated_stack.controllers import ENDLESS
from tests.support.simulated_stack.replica import Replica
from tests.support.simulated_stack.stack import SimulatedStack
from tests.support.simulated_stack.task import Task
from tests.support.simulated_stack.world import NETWORK_S

_MAX_START_S = 0.01
"""Requests do not come in step."""
_PASSAGE_TOKENS = 16
"""In which a lookup finds something or nothing."""


class _Numbers:
    """Random ones by place, the same whatever the schedule."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)
        self._values: list[float] = []

    def between(self, start: int, end: int) -> list[float]:
        while len(self._values) < end:
            self._values.append(self._random.random())
        return self._values[start:end]


class SimulatedSequence:
    """Begins by itself, a moment after it is made."""

    def __init__(
        self,
        stack: SimulatedStack,
        controller: Controller,
        num_tokens: int = ENDLESS,
        luck: int | None = None,
        on_answered: Callable[[], None] = lambda: None,
    ) -> None:
        """luck: two sequences of one number have the same drafts accepted, position by position; None: its own."""
        self.controller = controller
        self.num_remaining = num_tokens
        self._stack, self._world = stack, stack.world
        self._num_output = 0
        self._id = stack.num_sequences
        stack.num_sequences += 1
        self._is_stopped = False
        self._on_answered = on_answered
        luck = self._id if luck is None else luck
        self._num_prompt_rows = stack.prompt_tokens[luck % len(stack.prompt_tokens)] if stack.prompt_tokens else 0
        """Not asked for yet."""
        self._difficulties = _Numbers(1000 * self._world.seed + luck)
        """Of each output position: a draft there is accepted if the acceptance is larger."""
        self._passages = _Numbers(f"text {self._world.seed} {luck}")
        """Of each passage: the drafter has an answer in it if the share that has one is larger."""
        self._life = self._live()
        self._world.after(self._world.random.random() * _MAX_START_S, self._resume)

    def stop(self) -> None:
        """Its client has gone."""
        self._is_stopped = True

    def _resume(self) -> None:
        next(self._life, None)

    def _result(self, **values: Any) -> RoundResult:
        return RoundResult(
            now_s=self._world.now_s,
            num_output_tokens=self._num_output,
            num_remaining_tokens=self.num_remaining,
            replica_id="t",
            step_table=self._stack.target.load.step_table,
            **values,
        )

    @property
    def _prefill_s(self) -> float:
        """By which prefills have made the target's steps longer."""
        return self._stack.target.load.prefill_time_ns / 1e9

    def _num_accepted(self, num_draft_tokens: int) -> int:
        drafted = self._difficulties.between(self._num_output, self._num_output + num_draft_tokens)
        return sum(1 for _ in itertools.takewhile(lambda value: value < self._stack.acceptance, drafted))

    def _is_foreseeable(self) -> bool:
        """Whether the drafter has an answer here."""
        passage = self._num_output // _PASSAGE_TOKENS
        return self._passages.between(passage, passage + 1)[0] < self._stack.answered

    def _commit(self, num_tokens: int) -> None:
        self._num_output += num_tokens
        self.num_remaining -= num_tokens
        self._stack.num_tokens += num_tokens
        if self._num_output == num_tokens:  # the first
            self.controller.begin(self._result())

    def _live(self) -> Generator[None, None, None]:
        decision = self.controller.decide(self._result())
        while self.num_remaining > 0 and not self._is_stopped:
            if decision.num_draft_tokens:
                result = yield from self._speculate(decision)
                if self.num_remaining > 0:
                    decision = self.controller.decide(result)
            else:
                decision = yield from self._decode(decision)
        self.controller.close()
        if self.num_remaining > 0:
            self._world.after(NETWORK_S, lambda: self._stack.target.close(self._id))
        else:  # the target has ended it
            self._on_answered()

    def _speculate(self, decision: Decision) -> Generator[None, None, RoundResult]:
        num_drafts = decision.num_draft_tokens
        asked_s = self._world.now_s
        before, compute_s = self._stack.target.load, 0.0
        if self._world.random.random() >= self._stack.ahead:
            self._submit(self._stack.draft, Task(1, num_drafts, self._resume, answers_each_step=False))
            yield
            compute_s = num_drafts * self._stack.draft.load.step_time_ns / 1e9
        propose_s, sent_s = self._world.now_s - asked_s, self._world.now_s
        if not self._is_foreseeable():
            return (yield from self._decode_instead(decision, propose_s, before))
        num_accepted = self._num_accepted(num_drafts)
        self._ask_target(num_drafts + 1, 1, num_accepted + 1)
        yield
        self._commit(num_accepted + 1)
        return self._result(
            num_requested_tokens=num_drafts,
            num_draft_tokens=num_drafts,
            num_accepted_tokens=num_accepted,
            num_committed_tokens=num_accepted + 1,
            propose_s=propose_s,
            draft_compute_s=compute_s,
            target_s=self._world.now_s - sent_s,
            **self._since(before),
        )

    def _since(self, before: LoadReport) -> dict[str, Any]:
        """What the target did meanwhile."""
        load = self._stack.target.load
        return {
            "prefill_s": (load.prefill_time_ns - before.prefill_time_ns) / 1e9,
            "num_steps": load.num_steps - before.num_steps,
        }

    def _decode_instead(
        self, decision: Decision, propose_s: float, before: LoadReport
    ) -> Generator[None, None, RoundResult]:
        """The run of a round whose drafter has no answer."""
        num_tokens = min(decision.num_decode_tokens, self.num_remaining)
        sent_s, first_s, prefill_first_s = self._world.now_s, 0.0, 0.0
        self._ask_target(1, num_tokens)
        for number in range(num_tokens):
            yield
            self._commit(1)
            if number == 0:
                first_s, prefill_first_s = self._world.now_s, self._prefill_s
        return dataclasses.replace(
            self._decoded(num_tokens, 1, first_s, prefill_first_s),
            num_requested_tokens=decision.num_draft_tokens,
            propose_s=propose_s,
            target_s=self._world.now_s - sent_s,
            **self._since(before),
        )

    def _ask_target(self, num_rows: int, num_steps: int, num_step_tokens: int = 1, num_coming: int = 0) -> None:
        """For more after num_coming tokens that it was asked for before."""
        num_tokens = num_coming + num_steps * num_step_tokens
        task = Task(
            num_rows,
            num_steps,
            self._resume,
            goal_length=self._num_output + num_tokens,
            num_step_tokens=num_step_tokens,
            is_last=num_tokens == self.num_remaining,
            num_prompt_rows=self._num_prompt_rows,
        )
        self._num_prompt_rows = 0
        self._submit(self._stack.target, task)

    def _submit(self, replica: Replica, task: Task) -> None:
        self._world.after(NETWORK_S, lambda: replica.submit(self._id, task))

    def _decode(self, decision: Decision) -> Generator[None, None, Decision]:
        """A run, extended as long as the controller has it go on."""
        num_tokens = decision.num_decode_tokens
        num_done, num_first = 0, 1
        first_s: float | None = None
        prefill_before_s = 0.0
        self._ask_target(1, num_tokens)
        following: Decision | None = None
        while num_done < num_tokens and not self._is_stopped:
            yield
            self._commit(1)
            num_done += 1
            if first_s is None:
                first_s, num_first, prefill_before_s = self._world.now_s, 1, self._prefill_s
            num_coming = num_tokens - num_done
            is_running_out = num_coming > 0 and nears_end(num_tokens, num_coming)
            if is_running_out and following is None and self.num_remaining > num_coming:
                decoded = self._decoded(num_done, num_first, first_s, prefill_before_s, num_coming)
                following = self.controller.decide(decoded)
                if following.num_draft_tokens == 0:
                    # Mostly in time: the command overtakes the run's end.
                    self._ask_target(1, following.num_decode_tokens, num_coming=num_coming)
                    num_tokens = num_coming + following.num_decode_tokens
                    num_done, following = 0, None
                    first_s, num_first, prefill_before_s = self._world.now_s, 0, self._prefill_s
        if self.num_remaining <= 0:
            return decision
        return following or self.controller.decide(self._decoded(num_done, num_first, first_s, prefill_before_s))

    def _decoded(
        self, num_tokens: int, num_first: int, first_s: float | None, prefill_before_s: float, num_coming: int = 0
    ) -> RoundResult:
        elapsed_s = self._world.now_s - (self._world.now_s if first_s is None else first_s)
        num_timed, prefill_s = max(1, num_tokens - num_first), self._prefill_s - prefill_before_s
        result = self._result(
            num_plain_tokens=num_tokens,
            num_committed_tokens=num_tokens,
            target_s=elapsed_s,
            prefill_s=prefill_s,
            plain_token_s=max(0.0, elapsed_s - prefill_s) / num_timed,
        )
        return dataclasses.replace(result, num_remaining_tokens=self.num_remaining - num_coming)
