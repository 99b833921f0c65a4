"""The planner's formulas against the emulated engines themselves, scheduler and all, on a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import simpy

from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import HardwareProfile, StepCost, load_profile
from pilotfish.engine.batching.batching_delay import BatchingDelay
from pilotfish.messages import (
    AheadRequest,
    Command,
    Decode,
    OpenSequence,
    PreparedDrafts,
    Proposal,
    Propose,
    Verdict,
    Verify,
)
from pilotfish.planning.decoding import DecodingModel
from pilotfish.planning.drafting import Drafting
from pilotfish.types import Limits, ModelInfo, SamplingParams

ACCEPTANCE = 0.8
ROUND_TRIP_S, HANDLING_S = 0.0005, 0.0001
PROMPT_TOKENS = 5
NUM_ROUNDS = 1200
"""Of all sequences together: the luck of the draws is then within 3 %."""


@dataclass(slots=True)
class Peer:
    """What the orchestrator knows of a sequence."""

    tokens: list[int]
    num_drafter_knows: int = 0
    verified: tuple[int, ...] = ()
    prepared: list[PreparedDrafts] = field(default_factory=list)


class VirtualStack:
    """Target, drafter and an orchestrator that handles one message after the other, in simulated time."""

    def __init__(self, profile: HardwareProfile, batch: int, k: int, ahead_tokens: int) -> None:
        self.env = simpy.Environment()
        self.k = k
        num_outcomes = Drafting(ahead_tokens=ahead_tokens).num_outcomes_ahead(k, batch)
        self.ahead = AheadRequest(num_outcomes * k, (ACCEPTANCE,)) if num_outcomes else None
        self.num_tokens = self.num_rounds = 0
        self.free_s = 0.0
        self.target = self.engine(profile.target, profile, delays=True)
        self.drafter = self.engine(profile.draft, profile)
        self.peers = {number: Peer(list(range(number, number + PROMPT_TOKENS))) for number in range(1, batch + 1)}
        for number, peer in self.peers.items():
            opening = OpenSequence(number, tuple(peer.tokens), SamplingParams(temperature=0, max_tokens=1 << 20))
            self.drafter(opening)
            self.target(opening)
            self.target(Decode(number, PROMPT_TOKENS, 1))
            peer.num_drafter_knows = PROMPT_TOKENS

    def engine(self, cost: StepCost, profile: HardwareProfile, *, delays: bool = False) -> Callable[[Command], None]:
        """A way to send to a new one."""
        model = ModelInfo(model_id="", tokenizer_fingerprint="", vocab_size=1 << 15, max_context_tokens=1 << 20)
        core = EmulatedCore(
            model,
            Limits(max_draft_tokens=16, max_sequences=256),
            HashLanguageModel(vocab_size=1 << 15),
            acceptance=ACCEPTANCE,
            step_cost=cost,
            kv_cache_tokens=profile.kv_cache_tokens,
            max_batch_tokens=profile.max_batch_tokens,
        )
        delay = BatchingDelay(core.step_costs, profile.max_batch_tokens) if delays else None
        arrived: list[Command] = []
        bell = [self.env.event()]

        def take() -> None:
            commands, arrived[:] = list(arrived), []
            for command in commands:
                core.submit(command)

        def run():  # type: ignore[no-untyped-def]
            while True:
                if not arrived and (core.is_stuck or not core.has_work):
                    bell[0] = self.env.event()
                    yield bell[0]
                yield self.env.timeout(0)
                take()
                while delay is not None and core.has_work and (wait_ns := delay.wait_ns(self.now_ns)) > 0:
                    bell[0] = self.env.event()
                    yield bell[0] | self.env.timeout(wait_ns / 1e9)
                    take()
                events = core.step(None if delay is None else delay.max_rows(self.now_ns))
                yield self.env.timeout(core.step_s)
                if delay is not None:
                    take()
                    events = core.go_on(events)
                    delay.gave(events, self.now_ns)
                self.later(ROUND_TRIP_S / 2, lambda events=events: self.receive(events))

        def arrive(command: Command) -> None:
            if delay is not None:
                delay.took((command,), self.now_ns)
            arrived.append(command)
            if not bell[0].triggered:
                bell[0].succeed()

        self.env.process(run())
        return lambda command: self.later(ROUND_TRIP_S / 2, lambda: arrive(command))

    @property
    def now_ns(self) -> int:
        return round(1e9 * self.env.now)

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.env.timeout(delay_s).callbacks.append(lambda _: call())

    def receive(self, events: list[object]) -> None:
        for event in events:
            if isinstance(event, PreparedDrafts):
                peer = self.peers[event.sequence_id]
                peer.prepared.append(event)
                if event.base_length == len(peer.tokens):
                    self.target(event)
            elif isinstance(event, Proposal | Verdict):
                self.free_s = max(self.free_s, self.env.now) + HANDLING_S
                self.later(self.free_s - self.env.now, lambda event=event: self.handle(event))

    def handle(self, event: Proposal | Verdict) -> None:
        peer = self.peers[event.sequence_id]
        if isinstance(event, Proposal):
            if event.base_length == len(peer.tokens):
                self.verify(event)
            return
        peer.tokens += event.token_ids
        self.num_rounds += 1
        self.num_tokens += len(event.token_ids)
        committed = tuple(peer.tokens[peer.num_drafter_knows :])
        drafts = [one.draft(committed) for one in peer.prepared if one.base_length == peer.num_drafter_knows]
        draft = next((one for one in drafts if one is not None), None)
        self.propose(event.sequence_id, is_prepared=draft is not None)
        if draft is not None and not event.num_next_draft_tokens:
            self.verify(draft)

    def propose(self, number: int, *, is_prepared: bool) -> None:
        peer = self.peers[number]
        new = tuple(peer.tokens[peer.num_drafter_knows :])
        peer.num_drafter_knows = len(peer.tokens)
        peer.prepared.clear()
        self.drafter(Propose(number, len(peer.tokens), new, self.k, ahead=self.ahead, is_prepared=is_prepared))

    def verify(self, proposal: Proposal) -> None:
        number = proposal.sequence_id
        self.target(Verify(number, len(self.peers[number].tokens), proposal.draft_token_ids))

    def token_s(self) -> float:
        """From token to token of one sequence, after a warm-up."""
        self.run_rounds(NUM_ROUNDS // 4)
        start_s, start_tokens = self.env.now, self.num_tokens
        self.run_rounds(NUM_ROUNDS)
        return (self.env.now - start_s) * len(self.peers) / (self.num_tokens - start_tokens)

    def run_rounds(self, number: int) -> None:
        goal = self.num_rounds + number
        while self.num_rounds < goal:
            self.env.step()


@pytest.mark.parametrize(
    ("name", "batch", "k", "ahead_tokens"),
    [
        ("a100-70b", 1, 5, 60),
        ("a100-70b", 4, 5, 60),
        ("a100-70b", 64, 2, 0),
        ("h100-70b-tp4", 2, 5, 60),
        ("h100-70b-tp4", 16, 5, 0),
    ],
)
def test_rounds_take_what_they_take_with_the_engines(name: str, batch: int, k: int, ahead_tokens: int) -> None:
    profile = load_profile(name)
    stack = VirtualStack(profile, batch, k, ahead_tokens)
    measured_s = stack.token_s()
    model = DecodingModel(
        profile,
        Drafting(acceptance=(ACCEPTANCE,), ahead_tokens=ahead_tokens),
        context_tokens=sum(len(peer.tokens) for peer in stack.peers.values()) / batch / 2,
        round_trip_s=ROUND_TRIP_S,
        handling_s=HANDLING_S,
    )
    assert model.token_s(batch, k) == pytest.approx(measured_s, rel=0.06)
