"""The least that can stand in an engine's place: it says what the position tells, so a step costs nothing."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.messages import (
    CloseSequence,
    Command,
    Decode,
    Event,
    Opened,
    OpenSequence,
    Proposal,
    Propose,
    SequenceError,
    Verdict,
    Verify,
)
from pilotfish.types import FinishReason, Limits, LoadReport, ModelInfo, SequenceErrorCode

FIRST_TOKEN_ID = 1000
NUM_TOKEN_IDS = 997
MISS_INTERVAL = 6
"""Every so many positions a draft is wrong."""
MAX_CONTEXT_TOKENS = 1 << 20


def token_at(position: int) -> int:
    """What is said there."""
    return FIRST_TOKEN_ID + position * 31 % NUM_TOKEN_IDS


@dataclass(slots=True)
class EchoSequence:
    """How far it has come."""

    length: int
    max_length: int
    goal_length: int = 0
    """Where its decode run ends."""


class EchoCore:
    """pilotfish.engine.process.client.Core of both roles, as far as the orchestrator needs them."""

    def __init__(self, limits: Limits, *, fingerprint: str = "echo", tokenizer_path: str = "", vocab_size: int) -> None:
        self.model = ModelInfo(
            model_id="echo",
            tokenizer_fingerprint=fingerprint,
            tokenizer_path=tokenizer_path,
            vocab_size=vocab_size,
            max_context_tokens=MAX_CONTEXT_TOKENS,
            deterministic=True,
            proposer="echo",
            emulated=True,
        )
        self.limits = limits
        self._sequences: dict[int, EchoSequence] = {}
        self._running: dict[int, EchoSequence] = {}
        self._answers: list[Event] = []

    @property
    def has_work(self) -> bool:
        return bool(self._answers or self._running)

    @property
    def is_waiting(self) -> bool:
        return False

    def load(self) -> LoadReport:
        return LoadReport(num_sequences_running=len(self._sequences), num_sequences_decoding=len(self._running))

    def submit(self, command: Command) -> None:
        """Take a command; answers come out of the next step."""
        sequence_id = command.sequence_id
        if isinstance(command, OpenSequence):
            length = len(command.prompt_token_ids) + len(command.output_token_ids)
            max_length = len(command.prompt_token_ids) + command.sampling.max_tokens
            self._sequences[sequence_id] = EchoSequence(length, max_length)
            self._answers.append(Opened(sequence_id, 0))
        elif isinstance(command, CloseSequence):
            self._forget(sequence_id)
        elif isinstance(command, Propose):
            self._answers.append(_proposal(command))
        elif (sequence := self._sequences.get(sequence_id)) is None:
            code = SequenceErrorCode.UNKNOWN_SEQUENCE
            self._answers.append(SequenceError(sequence_id, code, "not open", command.base_length))
        elif isinstance(command, Decode):
            sequence.goal_length = max(sequence.goal_length, command.base_length + command.num_tokens)
            self._running[sequence_id] = sequence
        elif sequence_id not in self._running:  # as every engine, it drops a draft that its run has passed
            self._answers.append(self._verify(command, sequence))

    def step(self) -> list[Event]:
        """The answers, and a token of each run."""
        events, self._answers = self._answers, []
        for sequence_id, sequence in tuple(self._running.items()):
            base_length = sequence.length
            finish_reason = self._extend(sequence_id, sequence, 1)
            if finish_reason is None and sequence.length >= sequence.goal_length:
                del self._running[sequence_id]
            events.append(Verdict(sequence_id, base_length, 0, 0, (token_at(base_length),), (), finish_reason))
        return events

    def _verify(self, command: Verify, sequence: EchoSequence) -> Verdict:
        base_length, drafts = sequence.length, command.draft_token_ids
        num_accepted = 0
        while num_accepted < len(drafts) and drafts[num_accepted] == token_at(base_length + num_accepted):
            num_accepted += 1
        num_tokens = min(num_accepted + 1, sequence.max_length - base_length)
        finish_reason = self._extend(command.sequence_id, sequence, num_tokens)
        return Verdict(
            command.sequence_id,
            base_length,
            len(drafts),
            min(num_accepted, num_tokens),
            tuple(token_at(base_length + index) for index in range(num_tokens)),
            (),
            finish_reason,
        )

    def _extend(self, sequence_id: int, sequence: EchoSequence, num_tokens: int) -> FinishReason | None:
        sequence.length += num_tokens
        if sequence.length < sequence.max_length:
            return None
        self._forget(sequence_id)
        return FinishReason.LENGTH

    def _forget(self, sequence_id: int) -> None:
        self._sequences.pop(sequence_id, None)
        self._running.pop(sequence_id, None)


def _proposal(command: Propose) -> Proposal:
    positions = range(command.base_length, command.base_length + command.num_draft_tokens)
    drafts = tuple(token_at(position + (position % MISS_INTERVAL == 0)) for position in positions)
    return Proposal(command.sequence_id, command.base_length, drafts)
