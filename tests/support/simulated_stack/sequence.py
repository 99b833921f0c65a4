"""One request over simulated replicas: the orchestrator's own machine, with what it is told in virtual time."""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Sequence

from orchestrator.answers.sequence import Sequence as AnswerSequence
from orchestrator.control.controller import Controller
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from orchestrator.rounds.commands import Acquire, Acquired, Arrived, Close, Command, Open, Send
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter
from orchestrator.rounds.machine import Progress, RoundMachine
from orchestrator.rounds.peer import Peer
from orchestrator.rounds.target import Target
from pilotfish.messages import Decode, Event, Proposal, Propose, Verdict, Verify
from pilotfish.types import FinishReason, Limits, ModelInfo, SamplingParams, Timings
from tests.support.simulated_stack.controllers import ENDLESS
from tests.support.simulated_stack.replica import Replica
from tests.support.simulated_stack.stack import SimulatedStack
from tests.support.simulated_stack.task import Task
from tests.support.simulated_stack.view import NoText, Pool, View
from tests.support.simulated_stack.world import NETWORK_S

_MAX_START_S = 0.01
"""Requests do not come in step."""
_PASSAGE_TOKENS = 16
"""In which a lookup finds something or nothing."""
_MODEL = ModelInfo(model_id="simulated", tokenizer_fingerprint="", vocab_size=1, max_context_tokens=2 * ENDLESS)
_LIMITS = Limits(max_draft_tokens=64, max_sequences=10**6)
_CREDIT_TOKENS = 1024


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
        self._stack, self._world = stack, stack.world
        self._id = stack.num_sequences
        stack.num_sequences += 1
        self._on_answered = on_answered
        luck = self._id if luck is None else luck
        self._num_prompt_rows = stack.prompt_tokens[luck % len(stack.prompt_tokens)] if stack.prompt_tokens else 0
        """Not asked for yet."""
        self._difficulties = _Numbers(1000 * self._world.seed + luck)
        """Of each output position: a draft there is accepted if the acceptance is larger."""
        self._passages = _Numbers(f"text {self._world.seed} {luck}")
        """Of each passage: the drafter has an answer in it if the share that has one is larger."""
        request = GenerationRequest(
            prompt_token_ids=(0,),
            sampling=SamplingParams(temperature=0, max_tokens=num_tokens),
            speculation=SpeculationOptions(),
            num_speculative_tokens=0,
        )
        self._sequence = AnswerSequence(request, NoText())  # type: ignore[arg-type]
        self._asked_length = 1
        """Committed tokens once all is there that the target was asked for."""
        self._told_length = 1
        """Committed tokens that verdicts have stated."""
        self._steps: deque[tuple[int, int]] = deque()
        """What the target has still to answer: (draft tokens, output tokens) of each step."""
        out: list[Command] = []
        self._target_view = View("t", stack.target, _MODEL, _LIMITS, lambda: self._id)
        targets, drafts = Pool(self._target_view), Pool(View("d", stack.draft, _MODEL, _LIMITS, lambda: 0))
        self._machine = RoundMachine(
            self._sequence,
            controller,
            RemoteDrafter(drafts, lambda _: math.inf, out),
            Target(targets, self._sequence, out, acquire_timeout_s=ENDLESS),
            out,
            credit_tokens=_CREDIT_TOKENS,
        )
        self._target: Peer | None = None
        self._is_stopped = False
        self._world.after(self._world.random.random() * _MAX_START_S, self._start)

    @property
    def num_remaining(self) -> int:
        """Output tokens to come."""
        return self._sequence.num_remaining_tokens

    def stop(self) -> None:
        """Its client has gone."""
        if not self._is_stopped:
            self._is_stopped = True
            self._run(self._machine.close())

    def _start(self) -> None:
        if not self._is_stopped:
            self._take(self._machine.start(self._world.now_s))

    def _hear(self, peer: Peer, message: Event) -> None:
        if self._is_stopped:
            return
        now_s = self._world.now_s
        arrived = Arrived(peer, message, now_s, self._stack.target.load)
        self._take(self._machine.on_event(arrived, now_s))

    def _take(self, progress: Progress) -> None:
        self._run(progress.commands)
        self._stack.num_tokens += sum(len(chunk.token_ids) for chunk in progress.chunks)
        if self._sequence.is_finished and not self._is_stopped:
            self.stop()
            self._on_answered()

    def _run(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Acquire():
                    self._take(self._machine.on_event(Acquired(self._target_view), self._world.now_s))
                case Open() if command.peer.replica.replica_id == "t":
                    self._target = command.peer
                case Send():
                    self._send(command)
                case Close() if command.peer is self._target and not self._sequence.is_finished:
                    self._world.after(NETWORK_S, lambda: self._stack.target.close(self._id))

    def _send(self, command: Send) -> None:
        match command.message:
            case Propose():
                self._propose(command.peer, command.message)
            case Verify():
                num_drafts = len(command.message.draft_token_ids)
                self._ask_target(num_drafts + 1, 1, self._num_accepted(num_drafts) + 1)
            case Decode():
                goal_length = command.message.base_length + command.message.num_tokens
                self._ask_target(1, goal_length - max(self._asked_length, command.message.base_length), 1)

    def _propose(self, peer: Peer, command: Propose) -> None:
        num_drafts, is_foreseen = command.num_draft_tokens, self._is_foreseeable()
        drafts = (0,) * num_drafts if is_foreseen else ()

        def answer() -> None:
            compute_ns = num_drafts * self._stack.draft.load.step_time_ns
            self._hear(peer, Proposal(0, command.base_length, drafts, timings=Timings(compute_time_ns=compute_ns)))

        if self._world.random.random() < self._stack.ahead:
            self._hear(peer, Proposal(0, command.base_length, drafts))
        else:
            self._submit(self._stack.draft, Task(1, num_drafts, answer, answers_each_step=False))

    def _num_accepted(self, num_draft_tokens: int) -> int:
        num_output = self._sequence.num_output_tokens
        drafted = self._difficulties.between(num_output, num_output + num_draft_tokens)
        return sum(1 for _ in itertools.takewhile(lambda value: value < self._stack.acceptance, drafted))

    def _is_foreseeable(self) -> bool:
        """Whether the drafter has an answer here."""
        passage = self._sequence.num_output_tokens // _PASSAGE_TOKENS
        return self._passages.between(passage, passage + 1)[0] < self._stack.answered

    def _ask_target(self, num_rows: int, num_steps: int, num_step_tokens: int) -> None:
        self._asked_length = max(self._asked_length, self._sequence.length) + num_steps * num_step_tokens
        self._steps.extend([(num_rows - 1, num_step_tokens)] * num_steps)
        num_output = self._asked_length - 1
        task = Task(
            num_rows,
            num_steps,
            self._answer,
            goal_length=num_output,
            num_step_tokens=num_step_tokens,
            is_last=num_output == self._sequence.request.sampling.max_tokens,
            num_prompt_rows=self._num_prompt_rows,
        )
        self._num_prompt_rows = 0
        self._submit(self._stack.target, task)

    def _answer(self) -> None:
        """The next step's verdict has come."""
        if self._is_stopped:
            return
        num_drafts, num_tokens = self._steps.popleft()
        base_length, self._told_length = self._told_length, self._told_length + num_tokens
        is_last = self._told_length - 1 == self._sequence.request.sampling.max_tokens
        verdict = Verdict(
            self._id,
            base_length,
            num_drafts,
            num_tokens - 1,
            (0,) * num_tokens,
            finish_reason=FinishReason.LENGTH if is_last else None,
        )
        assert self._target is not None
        self._hear(self._target, verdict)

    def _submit(self, replica: Replica, task: Task) -> None:
        self._world.after(NETWORK_S, lambda: replica.submit(self._id, task))
