from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

import pytest

from orchestrator.control.replica_state import ControlState
from pilotfish.config import SpeculationConfig
from pilotfish.emulation.profiles import load_profile
from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.engine.batching.step_costs import StepCosts
from pilotfish.messages import Command, Decode, Event, Verdict, Verify
from tests.support.simulated_stack import replica
from tests.support.simulated_stack.closed_loop import Client
from tests.support.simulated_stack.controllers import controller
from tests.support.simulated_stack.stack import SimulatedStack

A100 = load_profile("a100-70b")
ANSWER_TOKENS = 96


class Listener(BatchingDelay):
    """Holds what it is told against what it was told before."""

    def __init__(self, costs: StepCosts, max_batch_tokens: int) -> None:
        super().__init__(costs, max_batch_tokens)
        self.lengths: dict[int, int] = defaultdict(int)
        self.goals: dict[int, int] = defaultdict(int)
        """Of the runs of plain decoding."""
        self.verdicts: list[Verdict] = []
        self.num_extensions = 0

    def took(self, commands: Iterable[Command], arrived_ns: int) -> None:
        for command in (commands := list(commands)):
            length, goal = self.lengths[command.sequence_id], self.goals[command.sequence_id]
            if isinstance(command, Verify):
                assert command.base_length == length >= goal
            elif isinstance(command, Decode):
                self.num_extensions += goal > length
                assert command.base_length == max(length, goal)
                self.goals[command.sequence_id] = command.base_length + command.num_tokens
        super().took(commands, arrived_ns)

    def gave(self, events: Sequence[Event], now_ns: int) -> None:
        for verdict in events:
            assert isinstance(verdict, Verdict)
            sequence_id = verdict.sequence_id
            assert verdict.base_length == self.lengths[sequence_id]
            assert len(verdict.token_ids) == verdict.num_accepted_tokens + 1 <= verdict.num_draft_tokens + 1
            self.lengths[sequence_id] += len(verdict.token_ids)
            assert (verdict.finish_reason is not None) == (self.lengths[sequence_id] == ANSWER_TOKENS)
            self.verdicts.append(verdict)
        super().gave(events, now_ns)


@pytest.mark.parametrize("acceptance", [0.02, 0.9])
def test_the_delay_is_told_what_sequences_ask_for_and_get(monkeypatch: pytest.MonkeyPatch, acceptance: float) -> None:
    """Else it believes in plain decoders that are none, and in rounds that yield what they do not."""
    monkeypatch.setattr(replica, "BatchingDelay", Listener)
    stack = SimulatedStack(A100, acceptance, ahead=0.5)
    listener = stack.target._delay
    state = ControlState(SpeculationConfig())
    for number in range(16):
        Client(stack, partial(controller, "auto", state, 8), (ANSWER_TOKENS,), number, 16)
    stack.world.run(2.0)
    told = sum(len(verdict.token_ids) for verdict in listener.verdicts)
    assert stack.num_tokens <= told <= stack.num_tokens + 9 * 16, "but for what is on its way"
    assert any(verdict.num_accepted_tokens for verdict in listener.verdicts)
    assert any(verdict.finish_reason for verdict in listener.verdicts)
    assert bool(listener.num_extensions) == (acceptance == 0.02), "plain decoding is the faster of the two"


class Halving(Listener):
    """Has no step take more rows than one verification does."""

    def max_rows(self, now_ns: int) -> int | None:
        return 9

    def gave(self, events: Sequence[Event], now_ns: int) -> None:
        assert sum(event.num_draft_tokens + 1 for event in events if isinstance(event, Verdict)) <= 9
        super().gave(events, now_ns)


def test_a_step_takes_as_many_rows_as_the_delay_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "BatchingDelay", Halving)
    stack = SimulatedStack(A100, 0.9, ahead=0.5)
    listener = stack.target._delay
    state = ControlState(SpeculationConfig())
    for number in range(4):
        Client(stack, partial(controller, "on", state, 8), (ANSWER_TOKENS,), number, 4)
    stack.world.run(1.0)
    assert {verdict.sequence_id for verdict in listener.verdicts} >= {0, 1, 2, 3}, "each in its turn"
