"""An engine core without a model: the states and answers of the real one, from a HashLanguageModel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import msgspec

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
from pilotfish.speculation.trees import ROOT, DraftTree
from pilotfish.testing.language_model import HashLanguageModel
from pilotfish.types import (
    AcceptanceMode,
    FinishReason,
    Limits,
    LoadReport,
    ModelInfo,
    SamplingParams,
    SequenceErrorCode,
    SparseDistribution,
)

BLOCK_TOKENS = 16


@dataclass(slots=True)
class EmulatedSequence:
    """Committed tokens, and what is wanted of them."""

    sequence_id: int
    sampling: SamplingParams
    token_ids: list[int]
    num_prompt_tokens: int
    task: Verify | Decode | Propose | None = None

    @property
    def num_blocks(self) -> int:
        return -(-len(self.token_ids) // BLOCK_TOKENS)


class EmulatedCore:
    """The interface of pilotfish.engine.core.EngineCore. One step answers every sequence that has a task."""

    def __init__(
        self,
        model: ModelInfo,
        limits: Limits,
        language_model: HashLanguageModel,
        *,
        acceptance: float = 0.8,
        num_kv_blocks: int = 4096,
    ) -> None:
        """acceptance: probability that a proposed token is the one the target would say."""
        self.model = model
        self.limits = limits
        self._language_model = language_model
        self._acceptance = acceptance
        self._num_kv_blocks = num_kv_blocks
        self._sequences: dict[int, EmulatedSequence] = {}
        self._busy: dict[int, EmulatedSequence] = {}
        self._answers: list[Event] = []
        self._num_sequences_decoding = self._num_step_tokens = 0  # of the last step

    @property
    def has_work(self) -> bool:
        return bool(self._busy or self._answers)

    @property
    def num_sequences(self) -> int:
        """Sequences held."""
        return len(self._sequences)

    @property
    def num_batch_tokens(self) -> int:
        """Token rows that the next step computes: what a latency model asks for."""
        return sum(_num_rows(sequence.task) for sequence in self._busy.values())

    def load(self) -> LoadReport:
        return LoadReport(
            num_sequences_running=len(self._sequences),
            num_kv_blocks_used=sum(sequence.num_blocks for sequence in self._sequences.values()),
            num_kv_blocks_total=self._num_kv_blocks,
            num_sequences_decoding=self._num_sequences_decoding,
            num_step_tokens=self._num_step_tokens,
        )

    def submit(self, command: Command) -> None:
        """Take a command; answers come out of the next step."""
        match command:
            case OpenSequence():
                self._open(command)
            case CloseSequence():
                self._forget(command.sequence_id)
            case Verify() | Decode():
                sequence = self._sequences.get(command.sequence_id)
                if sequence is None:
                    self._refuse(command, SequenceErrorCode.UNKNOWN_SEQUENCE)
                elif isinstance(command, Decode):
                    self._decode(sequence, command)
                else:
                    self._verify(sequence, command)
            case Propose():
                self._propose(command)
            case _:
                assert_never(command)

    def step(self) -> list[Event]:
        """One answer for every sequence that has a task."""
        events, self._answers = self._answers, []
        if self._busy:
            self._num_sequences_decoding, self._num_step_tokens = len(self._busy), self.num_batch_tokens
        for sequence in tuple(self._busy.values()):
            match sequence.task:
                case Verify(draft_token_ids=draft_token_ids, parents=parents):
                    events.append(self._commit(sequence, draft_token_ids, parents))
                    self._assign(sequence, None)
                case Decode(base_length=base_length, num_tokens=num_tokens):
                    events.append(self._commit(sequence, ()))
                    if len(sequence.token_ids) >= base_length + num_tokens:
                        self._assign(sequence, None)
                case Propose():
                    events.append(self._draft(sequence, sequence.task))
                    self._assign(sequence, None)
        return events

    def _open(self, command: OpenSequence) -> None:
        if len(self._sequences) >= self.limits.max_sequences:
            message = f"all {self.limits.max_sequences} sequences are in use"
            code = SequenceErrorCode.RESOURCE_EXHAUSTED
            self._answers.append(SequenceError(command.sequence_id, code, message))
            return
        self._sequences[command.sequence_id] = EmulatedSequence(
            command.sequence_id,
            command.sampling,
            [*command.prompt_token_ids, *command.output_token_ids],
            len(command.prompt_token_ids),
        )
        self._answers.append(Opened(command.sequence_id, 0))

    def _verify(self, sequence: EmulatedSequence, command: Verify) -> None:
        """As in the real engine, a draft that comes during a run ends it, if it foresaw what was decoded since."""
        decoded = tuple(sequence.token_ids[command.base_length :])
        if not decoded and command.base_length == len(sequence.token_ids):
            self._assign(sequence, command)
        elif not decoded or not isinstance(sequence.task, Decode):
            self._refuse(command, SequenceErrorCode.STALE)
        elif command.draft_token_ids[: len(decoded)] == decoded != command.draft_token_ids and not command.parents:
            self._assign(
                sequence,
                msgspec.structs.replace(
                    command,
                    base_length=len(sequence.token_ids),
                    draft_token_ids=command.draft_token_ids[len(decoded) :],
                    draft_probs=command.draft_probs[len(decoded) :],
                ),
            )

    def _decode(self, sequence: EmulatedSequence, command: Decode) -> None:
        """As in the real engine, a run that overlaps the one in progress moves its goal."""
        goal = command.base_length + command.num_tokens
        if command.base_length > len(sequence.token_ids):
            self._refuse(command, SequenceErrorCode.STALE)
        elif isinstance(sequence.task, Decode):
            goal = max(goal, sequence.task.base_length + sequence.task.num_tokens)
            self._assign(sequence, Decode(sequence.sequence_id, command.base_length, goal - command.base_length))
        elif goal > len(sequence.token_ids):
            self._assign(sequence, command)

    def _propose(self, command: Propose) -> None:
        sequence = self._sequences.get(command.sequence_id)
        start = command.base_length - len(command.new_token_ids)
        if sequence is None or not 0 <= start <= len(sequence.token_ids):
            self._refuse(command, SequenceErrorCode.UNKNOWN_SEQUENCE)
            return
        sequence.token_ids[start:] = command.new_token_ids
        self._assign(sequence, command)

    def _commit(
        self, sequence: EmulatedSequence, draft_token_ids: Sequence[int], parents: tuple[int, ...] = ()
    ) -> Verdict:
        tree = DraftTree(parents) if parents else DraftTree.chain(len(draft_token_ids))
        tokens, base_length = sequence.token_ids, len(sequence.token_ids)
        path: list[int] = []
        children, finish_reason = tree.children[0], None
        while finish_reason is None:
            token_id = self._language_model.next_token(tokens, sequence.sampling)
            tokens.append(token_id)
            finish_reason = self._finish_reason(sequence)
            node = next((child for child in children if draft_token_ids[child] == token_id), None)
            if node is None:
                break
            path.append(node)
            children = tree.children[node + 1]
        if finish_reason is not None:
            self._forget(sequence.sequence_id)
        return Verdict(
            sequence_id=sequence.sequence_id,
            base_length=base_length,
            num_draft_tokens=len(draft_token_ids),
            num_accepted_tokens=len(path),
            token_ids=tuple(tokens[base_length:]),
            finish_reason=finish_reason,
            draft_depth=tree.depth if parents else 0,
            ended_in_leaf=bool(parents) and not children,
        )

    def _finish_reason(self, sequence: EmulatedSequence) -> FinishReason | None:
        if sequence.token_ids[-1] in sequence.sampling.stop_token_ids:
            return FinishReason.STOP
        num_output_tokens = len(sequence.token_ids) - sequence.num_prompt_tokens
        if num_output_tokens >= sequence.sampling.max_tokens:
            return FinishReason.LENGTH
        return FinishReason.LENGTH if len(sequence.token_ids) >= self.model.max_context_tokens else None

    def _draft(self, sequence: EmulatedSequence, command: Propose) -> Proposal:
        tokens = sequence.token_ids
        for _ in range(command.num_draft_tokens):
            tokens.append(self._language_model.draft_token(tokens, sequence.sampling, self._acceptance))
        drafted = tuple(tokens[command.base_length :])
        del tokens[command.base_length :]
        parents: tuple[int, ...] = ()
        if command.tree is not None:
            drafted, parents = self._with_siblings(drafted, command.tree.max_nodes)
        samples = sequence.sampling.acceptance is AcceptanceMode.REJECTION and not sequence.sampling.is_greedy
        probs = tuple(SparseDistribution((token_id,), (1.0,)) for token_id in drafted) if samples else ()
        return Proposal(sequence.sequence_id, command.base_length, drafted, probs, parents=parents)

    def _with_siblings(self, chain: Sequence[int], max_nodes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Token ids and parents of a tree: another token before each of the chain's, as far as the nodes last."""
        first, size = self._language_model.first_token_id, self._language_model.vocab_size
        drafted: list[int] = []
        parents: list[int] = []
        parent = ROOT
        for token_id in chain[: max_nodes // 2]:
            drafted += [token_id + 1 if token_id + 1 < size else first, token_id]
            parents += [parent, parent]
            parent = len(drafted) - 1
        return tuple(drafted), tuple(parents)

    def _assign(self, sequence: EmulatedSequence, task: Verify | Decode | Propose | None) -> None:
        sequence.task = task
        if task is None:
            self._busy.pop(sequence.sequence_id, None)
        else:
            self._busy[sequence.sequence_id] = sequence

    def _forget(self, sequence_id: int) -> None:
        self._sequences.pop(sequence_id, None)
        self._busy.pop(sequence_id, None)

    def _refuse(self, command: Verify | Decode | Propose, code: SequenceErrorCode) -> None:
        message = f"{code.name.lower()}: base_length {command.base_length}"
        self._answers.append(SequenceError(command.sequence_id, code, message, command.base_length))


def _num_rows(task: Verify | Decode | Propose | None) -> int:
    match task:
        case Verify():
            return len(task.draft_token_ids) + 1
        case Propose():
            return task.num_draft_tokens
        case Decode():
            return 1
        case None:
            return 0
