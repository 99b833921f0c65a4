"""Replicas in memory, behind the Link protocol: the orchestrator's objects without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from orchestrator.replicas.mailbox import Receiver
from pilotfish.errors import UnavailableError
from pilotfish.messages import (
    CloseSequence,
    Command,
    Decode,
    Event,
    Opened,
    OpenSequence,
    Predrafted,
    Proposal,
    Propose,
    SequenceError,
    Verdict,
    Verify,
)
from pilotfish.speculation.common_prefix import num_common_tokens
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.step_table import StepTable
from pilotfish.types import FinishReason, Limits, LoadReport, ModelInfo, SequenceErrorCode
from tests.support.toy_model import VOCAB_SIZE, continuation, next_token

T = TypeVar("T")


class MemoryLink:
    """A replica that serves the toy model; events come on the next turn of the loop."""

    def __init__(self, replica_id: str) -> None:
        self.replica_id = replica_id
        self.is_connected = True
        self.is_draining = False
        self.is_circuit_open = False
        self._model = ModelInfo(
            model_id="toy", tokenizer_fingerprint="toy", vocab_size=VOCAB_SIZE, max_context_tokens=1000
        )
        self._limits = Limits(max_draft_tokens=8, max_sequences=64, takes_prepared_drafts=True)
        self.load = LoadReport()
        self.step_table = StepTable((1, 2, 5, 9), (10_000_000, 11_000_000, 12_000_000, 13_000_000))
        self.num_other_sequences = 0
        self.is_full = False
        """A sequence was refused for want of a place."""
        self.commands: list[Command] = []
        self.failures: list[str] = []
        self.num_successes = 0
        self.tokens: dict[int, list[int]] = {}
        self.drafts_ahead = False
        self.step_s = 0.0
        """That a verification takes; then the replica goes on with what was prepared meanwhile."""
        self.forced: Callable[[Sequence[int]], tuple[int, ...]] = lambda _: ()
        """What a grammar forces behind the tokens, right or not."""
        self.takes_forced: dict[int, bool] = {}
        self.prepared: dict[int, Predrafted] = {}
        """Of each sequence: for its next verdict."""
        self.prompt_lengths: dict[int, int] = {}
        self.max_lengths: dict[int, int] = {}
        self.stop_token_ids: dict[int, tuple[int, ...]] = {}
        self.mailboxes: dict[int, Receiver] = {}
        self.on_event: Callable[[Event], Sequence[Event]] = lambda event: (event,)
        """What really comes for each event: faults are injected here."""
        self.decodes_step_by_step = False
        """A decode run takes a turn of the loop for each token, so that a draft can cut in."""
        self.goal_lengths: dict[int, int] = {}
        """Of the runs in progress."""
        self._num_sequences = 0

    @property
    def model(self) -> ModelInfo:
        return self._told(self._model)

    @model.setter
    def model(self, model: ModelInfo) -> None:
        self._model = model

    @property
    def limits(self) -> Limits:
        return self._told(self._limits)

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits = limits

    def _told(self, value: T) -> T:
        """As of a link: known while there is a stream."""
        if not self.is_connected:
            raise UnavailableError(f"{self.replica_id} is not connected")
        return value

    @property
    def is_healthy(self) -> bool:
        return self.is_connected and not self.is_draining and not self.is_circuit_open

    @property
    def num_sequences(self) -> int:
        return len(self.mailboxes)

    def serves(self, sequence_id: int) -> bool:
        return self.is_healthy

    def new_sequence_id(self) -> int:
        self._num_sequences += 1
        return self._num_sequences

    def attach(self, sequence_id: int, receiver: Receiver) -> None:
        self.mailboxes[sequence_id] = receiver

    def detach(self, sequence_id: int) -> None:
        self.mailboxes.pop(sequence_id, None)

    def report_failure(self, reason: str) -> None:
        self.failures.append(reason)

    def report_success(self) -> None:
        self.num_successes += 1

    def report_draining(self) -> None:
        self.is_draining = True

    def report_full(self) -> None:
        self.is_full = True

    def lose(self) -> None:
        """The connection breaks."""
        self.is_connected = False
        self.tokens.clear()
        for mailbox in tuple(self.mailboxes.values()):
            mailbox.fail(UnavailableError(f"{self.replica_id} was lost"))

    def send(self, command: Command) -> None:
        if not self.is_connected:
            raise UnavailableError(f"{self.replica_id} is not connected")
        self.commands.append(command)
        self._answer(self._handle(command))

    def _answer(self, events: Sequence[Event]) -> None:
        for event in events:
            for actual in self.on_event(event):
                asyncio.get_running_loop().call_soon(self._deliver, actual)

    def _step(self, sequence_id: int) -> None:
        """The next token of a run, unless it was ended."""
        if sequence_id not in self.goal_lengths or sequence_id not in self.tokens:
            self.goal_lengths.pop(sequence_id, None)
            return
        verdict = self._verdict(sequence_id, ())
        if verdict.finish_reason is not None or len(self.tokens[sequence_id]) >= self.goal_lengths[sequence_id]:
            del self.goal_lengths[sequence_id]
        else:
            self._step_later(sequence_id)
        self._answer([verdict])

    def _step_later(self, sequence_id: int) -> None:
        # The verdict travels, and a command back, while the next step runs.
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._step, sequence_id)

    def _deliver(self, event: Event) -> None:
        mailbox = self.mailboxes.get(event.sequence_id)
        if mailbox is not None and self.is_connected:
            mailbox.deliver(event)

    def _handle(self, command: Command) -> list[Event]:
        if isinstance(command, OpenSequence):
            self.tokens[command.sequence_id] = [*command.prompt_token_ids, *command.output_token_ids]
            self.max_lengths[command.sequence_id] = len(command.prompt_token_ids) + command.sampling.max_tokens
            self.stop_token_ids[command.sequence_id] = command.sampling.stop_token_ids
            return [Opened(command.sequence_id, 3)]
        if isinstance(command, CloseSequence):
            self.tokens.pop(command.sequence_id, None)
            self.goal_lengths.pop(command.sequence_id, None)
            return []
        tokens = self.tokens.get(command.sequence_id)
        if tokens is None:
            return [SequenceError(command.sequence_id, SequenceErrorCode.UNKNOWN_SEQUENCE, "unknown")]
        if isinstance(command, Predrafted):
            self.prepared[command.sequence_id] = command
            return []
        if isinstance(command, Propose):
            del tokens[command.base_length - len(command.new_token_ids) :]
            tokens.extend(command.new_token_ids)
            if command.tree is not None:
                return [self._tree_proposal(command, tokens)]
            drafted = continuation(tokens, command.num_draft_tokens)
            events: list[Event] = []
            if not command.is_prepared:
                events.append(Proposal(command.sequence_id, command.base_length, drafted))
            if command.ahead is not None and self.drafts_ahead:
                events.append(self._prepared(command, tokens))
            return events
        if isinstance(command, Verify) and command.sequence_id in self.goal_lengths:
            decoded = tuple(tokens[command.base_length :])
            if command.draft_token_ids[: len(decoded)] != decoded or len(decoded) >= len(command.draft_token_ids):
                return []
            del self.goal_lengths[command.sequence_id]
            rest = command.draft_token_ids[len(decoded) :]
            return [self._as_answer(self._verdict(command.sequence_id, rest))]
        self.takes_forced[command.sequence_id] = command.takes_forced_drafts
        if command.base_length != len(tokens):
            return [SequenceError(command.sequence_id, SequenceErrorCode.STALE, "stale", command.base_length)]
        if isinstance(command, Decode) and self.decodes_step_by_step:
            self.goal_lengths[command.sequence_id] = command.base_length + command.num_tokens
            self._step(command.sequence_id)
            return []
        if isinstance(command, Decode):
            verdicts: list[Event] = []
            goal = command.base_length + command.num_tokens
            num_drafts = command.num_draft_tokens if self.model.proposer else 0
            while len(tokens) < goal:
                drafts = continuation(tokens, min(num_drafts, goal - len(tokens) - 1))
                verdicts.append(self._verdict(command.sequence_id, drafts))
                if verdicts[-1].finish_reason is not None:  # type: ignore[union-attr]
                    break
            return verdicts
        assert isinstance(command, Verify)
        if self.step_s:
            self._later(command.sequence_id, command.draft_token_ids, command.parents)
            return []
        return [self._as_answer(self._verdict(command.sequence_id, command.draft_token_ids, command.parents))]

    def _later(self, sequence_id: int, draft_token_ids: Sequence[int], parents: Sequence[int] = ()) -> None:
        asyncio.get_running_loop().call_later(self.step_s, self._verify, sequence_id, draft_token_ids, parents)

    def _verify(self, sequence_id: int, draft_token_ids: Sequence[int], parents: Sequence[int]) -> None:
        """A step has ended; the next one verifies what was prepared for just its outcome."""
        if sequence_id not in self.tokens:
            return
        verdict = self._as_answer(self._verdict(sequence_id, draft_token_ids, parents))
        prepared = self.prepared.pop(sequence_id, None)
        if prepared is not None and prepared.base_length == verdict.base_length and verdict.finish_reason is None:
            draft = prepared.draft(verdict.token_ids)
            if draft is not None:
                self._later(sequence_id, draft.draft_token_ids)
                verdict = msgspec.structs.replace(verdict, num_next_draft_tokens=len(draft.draft_token_ids))
        self._answer([verdict])

    @staticmethod
    def _as_answer(verdict: Verdict) -> Verdict:
        """The verdict of a Verify."""
        is_replaced = 0 < verdict.num_grammar_tokens == verdict.num_draft_tokens
        return msgspec.structs.replace(verdict, replaces_draft=is_replaced)

    @staticmethod
    def _prepared(command: Propose, tokens: Sequence[int]) -> Predrafted:
        """For the outcome that all is accepted."""
        k = command.num_draft_tokens
        following = continuation(tokens, 2 * k + 1)
        return Predrafted(
            command.sequence_id, command.base_length, following[:k], (k,), (following[k],), following[k + 1 :]
        )

    @staticmethod
    def _tree_proposal(command: Propose, tokens: Sequence[int]) -> Proposal:
        """A wrong token before each right one, as far as the nodes last."""
        assert command.tree is not None
        drafted: list[int] = []
        parents: list[int] = []
        parent = -1
        for token_id in continuation(tokens, command.num_draft_tokens):
            if len(drafted) + 2 > command.tree.max_nodes:
                break
            drafted += [(token_id + 1) % VOCAB_SIZE, token_id]
            parents += [parent, parent]
            parent = len(drafted) - 1
        return Proposal(command.sequence_id, command.base_length, tuple(drafted), parents=tuple(parents))

    def _verdict(self, sequence_id: int, draft_token_ids: Sequence[int], parents: Sequence[int] = ()) -> Verdict:
        tokens = self.tokens[sequence_id]
        forced = self.forced(tokens) if self.takes_forced.get(sequence_id) and not parents else ()
        common = num_common_tokens(forced, draft_token_ids)
        if common < len(forced):
            draft_token_ids = forced
        tree = DraftTree(tuple(parents)) if parents else DraftTree.chain(len(draft_token_ids))
        base_length, output, num_accepted = len(tokens), list[int](), 0
        finish_reason: FinishReason | None = None
        node: int | None = -1
        while finish_reason is None and node is not None:
            token_id = next_token(tokens)
            tokens.append(token_id)
            output.append(token_id)
            last = node
            node = next((child for child in tree.children[node + 1] if draft_token_ids[child] == token_id), None)
            num_accepted += node is not None
            if token_id in self.stop_token_ids[sequence_id]:
                finish_reason = FinishReason.STOP
            elif len(tokens) >= self.max_lengths[sequence_id]:
                finish_reason = FinishReason.LENGTH
        return Verdict(
            sequence_id,
            base_length,
            len(draft_token_ids),
            num_accepted,
            tuple(output),
            finish_reason=finish_reason,
            draft_depth=tree.depth if parents else 0,
            ended_in_leaf=bool(parents) and not tree.children[last + 1],
            first_grammar_token=common if common < len(forced) else 0,
            num_grammar_tokens=len(forced) - common,
        )
