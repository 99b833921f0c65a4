"""Controllers against a simulated replica: never slower than the better of always-on and off, and no oscillation.

No asyncio and no clock: events in virtual time. A target replica computes in each step what is ready, as the real
scheduler does; a draft replica computes a token for every proposal it works at.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import pytest

from orchestrator.control.decision import Decision, Observation
from orchestrator.control.measurements import Measurements
from orchestrator.control.reasons import Reason
from orchestrator.controller import Controller
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from pilotfish.config import SpeculationConfig
from pilotfish.engine.gathering import StepGathering
from pilotfish.messages import Decode, Verdict, Verify
from pilotfish.profiles import HardwareProfile, load_profile
from pilotfish.types import LoadReport, SamplingParams

NETWORK_S = 0.0002
"""One way, both pools."""
A100 = load_profile("a100-70b")


@dataclass
class Task:
    """What a replica is to do for one sequence: num_steps steps of num_rows rows."""

    num_rows: int
    num_steps: int
    resume: Callable[[], None]
    """Called when the result has travelled."""
    answers_each_step: bool = True
    """As a decode run does; a proposal is one result."""


class Replica:
    """Steps back to back over whatever is ready."""

    def __init__(self, world: World, cost, max_rows: int) -> None:
        self.world = world
        self.cost = cost
        self.max_rows = max_rows
        self.tasks: dict[int, Task] = {}
        self.load = LoadReport()
        self.is_busy = False

    def submit(self, sequence_id: int, task: Task) -> None:
        self.tasks[sequence_id] = task
        if not self.is_busy:
            self.start()

    def start(self) -> None:
        batch, num_rows = [], 0
        for sequence_id, task in self.tasks.items():
            if num_rows + task.num_rows <= self.max_rows:
                batch.append((sequence_id, task))
                num_rows += task.num_rows
        self.is_busy = bool(batch)
        if batch:
            step_s = self.cost.step_s(len(batch), num_rows)
            self.world.after(step_s, lambda: self.finish(batch, num_rows, step_s))

    def finish(self, batch: list[tuple[int, Task]], num_rows: int, step_s: float) -> None:
        self.load = LoadReport(
            num_sequences_decoding=len(batch), num_step_tokens=num_rows, step_time_ns=round(step_s * 1e9)
        )
        for sequence_id, task in batch:
            task.num_steps -= 1
            # Whoever was served goes to the end of the queue.
            del self.tasks[sequence_id]
            if task.num_steps:
                self.tasks[sequence_id] = task
            if task.answers_each_step or task.num_steps == 0:
                self.world.after(NETWORK_S, task.resume)
        self.start()


class GatheringTarget(Replica):
    """Waits for sequences that come back soon, as the worker of a real engine does."""

    def __init__(self, world: World, cost, max_rows: int) -> None:
        super().__init__(world, cost, max_rows)
        self.gathering = StepGathering(max_rows)
        self.arrived: list[Verify | Decode] = []
        self.num_arrivals = 0

    @property
    def now_ns(self) -> int:
        return round(1e9 * self.world.now_s)

    def submit(self, sequence_id: int, task: Task) -> None:
        draft = (0,) * (task.num_rows - 1)
        self.arrived.append(Verify(sequence_id, 1, draft) if draft else Decode(sequence_id, 1, task.num_steps))
        self.tasks[sequence_id] = task
        if not self.is_busy:
            self.gather(is_seen=True)

    def start(self) -> None:
        self.is_busy = False
        self.gather(is_seen=False)

    def gather(self, *, is_seen: bool, is_over: bool = False) -> None:
        self.gathering.took(self.arrived, self.now_ns, is_seen=is_seen)
        self.arrived = []
        self.num_arrivals += 1
        wait_ns = 0 if is_over or not self.tasks else self.gathering.wait_ns(self.now_ns)
        if wait_ns > 0:
            self.world.after(wait_ns / 1e9, lambda number=self.num_arrivals: self.give_up(number))
        else:
            super().start()

    def give_up(self, num_arrivals: int) -> None:
        if num_arrivals == self.num_arrivals:
            self.gather(is_seen=True, is_over=True)

    def finish(self, batch: list[tuple[int, Task]], num_rows: int, step_s: float) -> None:
        load = LoadReport(num_step_tokens=num_rows, step_time_ns=round(step_s * 1e9))
        verdicts = [
            Verdict(sequence_id, 1, task.num_rows - 1, 0, (0,) * ((task.num_rows + 1) // 2))
            for sequence_id, task in batch
        ]
        self.gathering.gave(verdicts, load, self.now_ns)
        super().finish(batch, num_rows, step_s)


@dataclass
class Tally:
    """What one sequence did."""

    num_tokens: int = 0
    num_drafted_rounds: int = 0
    reasons: set[Reason] = field(default_factory=set)


class World:
    """Virtual time, a target and a draft replica, and sequences on them."""

    def __init__(
        self, profile: HardwareProfile = A100, seed: int = 0, *, gathers: bool = False, ahead: float = 0.0
    ) -> None:
        """ahead: share of the drafts that were made ahead, so that a round does not wait for them."""
        self.now_s = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        kind = GatheringTarget if gathers else Replica
        self.target = kind(self, profile.target, profile.max_batch_tokens)
        self.draft = Replica(self, profile.draft, profile.max_batch_tokens)
        self.seed = seed
        self.random = random.Random(seed)
        self.ahead = ahead
        self.acceptance = 0.8
        self.num_sequences = 0

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now_s + delay_s, next(self.order), action))

    def run(self, until_s: float) -> None:
        while self.events and self.events[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self.events)
            action()
        self.now_s = until_s


class Session:
    """orchestrator.session.Session over a World, in continuations."""

    def __init__(self, world: World, controller, num_tokens: int = 10**9) -> None:
        self.world = world
        self.controller = controller
        self.num_remaining = num_tokens
        self.num_output = 0
        self.tally = Tally()
        self.id = world.num_sequences
        self.is_stopped = False
        world.num_sequences += 1
        self.difficulty = random.Random(1000 * world.seed + self.id)
        self.difficulties: list[float] = []
        """Of each output position: a draft there is accepted if the acceptance is larger, whatever the schedule."""
        self.waiting = self.life()
        # Requests do not come in step.
        world.after(world.random.random() * 0.01, self.resume)

    def resume(self) -> None:
        next(self.waiting, None)

    def stop(self) -> None:
        self.is_stopped = True

    def observe(self, **values) -> Observation:
        return Observation(
            now_s=self.world.now_s,
            num_output_tokens=self.num_output,
            num_remaining_tokens=self.num_remaining,
            replica_id="t",
            target_load=self.world.target.load,
            **values,
        )

    def num_accepted(self, num_draft_tokens: int) -> int:
        while len(self.difficulties) < self.num_output + num_draft_tokens:
            self.difficulties.append(self.difficulty.random())
        drafted = self.difficulties[self.num_output : self.num_output + num_draft_tokens]
        return sum(1 for _ in itertools.takewhile(lambda value: value < self.world.acceptance, drafted))

    def commit(self, num_tokens: int) -> None:
        self.num_output += num_tokens
        self.num_remaining -= num_tokens
        self.tally.num_tokens += num_tokens

    def life(self) -> Generator[None, None, None]:
        decision = self.controller.next_k(self.observe())
        while self.num_remaining > 0 and not self.is_stopped:
            self.tally.reasons.add(decision.reason)
            if decision.num_draft_tokens:
                observation = yield from self.speculate(decision)
                decision = self.controller.next_k(observation)
            else:
                decision = yield from self.decode(decision)
        self.controller.close()

    def speculate(self, decision: Decision) -> Generator[None, None, Observation]:
        world, num_drafts = self.world, decision.num_draft_tokens
        self.tally.num_drafted_rounds += 1
        asked_s = world.now_s
        if world.random.random() >= world.ahead:
            self.submit(world.draft, Task(1, num_drafts, self.resume, answers_each_step=False))
            yield
        propose_s, sent_s = world.now_s - asked_s, world.now_s
        self.submit(world.target, Task(num_drafts + 1, 1, self.resume))
        yield
        num_accepted = self.num_accepted(num_drafts)
        self.commit(num_accepted + 1)
        return self.observe(
            num_requested_tokens=num_drafts,
            num_draft_tokens=num_drafts,
            num_accepted_tokens=num_accepted,
            num_committed_tokens=num_accepted + 1,
            propose_s=propose_s,
            step_s=world.now_s - sent_s,
        )

    def submit(self, replica: Replica, task: Task) -> None:
        self.world.after(NETWORK_S, lambda: replica.submit(self.id, task))

    def decode(self, decision: Decision) -> Generator[None, None, Decision]:
        """A run, extended as long as the controller has it go on."""
        num_tokens = decision.num_decode_tokens
        num_done, num_first = 0, 1
        first_s: float | None = None
        run = Task(1, num_tokens, self.resume)
        self.submit(self.world.target, run)
        following: Decision | None = None
        while num_done < num_tokens and not self.is_stopped:
            yield
            self.commit(1)
            num_done += 1
            if first_s is None:
                first_s, num_first = self.world.now_s, 1
            is_running_out = num_tokens >= 8 and 4 * (num_tokens - num_done) <= num_tokens and num_done < num_tokens
            num_coming = num_tokens - num_done
            if is_running_out and following is None and self.num_remaining > num_coming:
                following = self.controller.next_k(self.decoded(num_done, num_first, first_s, num_coming))
                if following.num_draft_tokens == 0:
                    # In time: the command overtakes the run's end.
                    run.num_steps += following.num_decode_tokens
                    num_tokens = num_tokens - num_done + following.num_decode_tokens
                    num_done, following = 0, None
                    first_s, num_first = self.world.now_s, 0
        if self.is_stopped:
            run.num_steps = 1
        if self.num_remaining <= 0:
            return decision
        return following or self.controller.next_k(self.decoded(num_done, num_first, first_s))

    def decoded(self, num_tokens: int, num_first: int, first_s: float | None, num_coming: int = 0) -> Observation:
        elapsed_s = self.world.now_s - (self.world.now_s if first_s is None else first_s)
        token_s = elapsed_s / (num_tokens - num_first) if num_tokens > num_first else 0.0
        observation = self.observe(
            num_decoded_tokens=num_tokens, num_committed_tokens=num_tokens, step_s=elapsed_s, token_s=token_s
        )
        return dataclasses.replace(observation, num_remaining_tokens=self.num_remaining - num_coming)


class Fixed:
    """Always the same K after the first token; 0 is a deployment without drafters."""

    def __init__(self, num_draft_tokens: int) -> None:
        self.num_draft_tokens = num_draft_tokens

    def next_k(self, observation: Observation) -> Decision:
        if self.num_draft_tokens == 0:
            return Decision(0, observation.num_remaining_tokens, Reason.MODE_OFF)
        if observation.num_output_tokens == 0:
            return Decision(0, 1, Reason.FIRST_TOKEN)
        return Decision(self.num_draft_tokens, 1, Reason.REQUESTED)

    def close(self) -> None:
        pass


def adaptive(measurements: Measurements, k: int = 5, config: SpeculationConfig | None = None) -> Controller:
    request = GenerationRequest(
        prompt_token_ids=(1,),
        sampling=SamplingParams(max_tokens=10**9),
        speculation=SpeculationOptions(mode="auto"),
        num_speculative_tokens=k,
    )
    return Controller(request, measurements, config or SpeculationConfig())


def throughput(
    concurrency: int, acceptance: float, make, warm_up_s: float = 1.0, *, gathers: bool = False, ahead: float = 0.0
) -> float:
    """Tokens per second of all sequences. Of one alone, the mean over three: the luck of its first rounds is much."""
    measured_s = max(1.5, 20 / concurrency)
    seeds = range(3 if concurrency == 1 else 1)
    num_tokens, end_s = 0, 0.0
    for seed in seeds:
        world = World(seed=seed, gathers=gathers, ahead=ahead)
        world.now_s = end_s  # what is measured is kept for the next one
        world.acceptance = acceptance
        sessions = [Session(world, make()) for _ in range(concurrency)]
        world.run(end_s + warm_up_s)
        before = sum(session.tally.num_tokens for session in sessions)
        end_s += warm_up_s + measured_s
        world.run(end_s)
        num_tokens += sum(session.tally.num_tokens for session in sessions) - before
        for session in sessions:
            session.controller.close()
    return num_tokens / measured_s / len(seeds)


@pytest.mark.parametrize("profile", [A100, None], ids=["profile", "no_profile"])
@pytest.mark.parametrize("acceptance", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("concurrency", [1, 2, 8, 32, 128])
def test_never_slower_than_the_better_of_always_on_and_off(concurrency, acceptance, profile) -> None:
    measurements = Measurements(profile)
    off = throughput(concurrency, acceptance, lambda: Fixed(0))
    always_on = max(throughput(concurrency, acceptance, lambda k=k: Fixed(k)) for k in (1, 3, 5))
    auto = throughput(concurrency, acceptance, lambda: adaptive(measurements))
    # At 32 the rows are about as many as the knee of the roofline: draft lengths side by side differ by a few per
    # cent, by how the sequences happen to be split over two steps, and the fixed arm is the best in hindsight.
    bound = 0.96 if concurrency == 32 else 0.98
    assert auto >= bound * max(off, always_on), (auto, off, always_on)


@pytest.mark.parametrize(("concurrency", "acceptance"), [(4, 0.9), (8, 0.6), (16, 0.6), (32, 0.9), (64, 0.3)])
def test_never_slower_where_the_target_waits_for_sequences(concurrency: int, acceptance: float) -> None:
    measurements = Measurements()
    fixed = [throughput(concurrency, acceptance, lambda k=k: Fixed(k), gathers=True) for k in (0, 8)]
    auto = throughput(concurrency, acceptance, lambda: adaptive(measurements, k=8), gathers=True)
    assert auto >= 0.98 * max(fixed), (auto, fixed)


@pytest.mark.parametrize(("concurrency", "acceptance"), [(1, 0.9), (2, 0.9), (4, 0.9), (2, 0.6)])
def test_never_slower_where_some_drafts_are_made_ahead_and_some_are_not(concurrency: int, acceptance: float) -> None:
    """Rounds scatter by a third then: their luck must not choose the draft length."""
    measurements = Measurements()
    on, auto = (
        throughput(concurrency, acceptance, make, gathers=True, ahead=0.5)
        for make in (lambda: Fixed(8), lambda: adaptive(measurements, k=8))
    )
    assert auto >= 0.98 * on, (auto, on)


def rate_between(world: World, sessions: list[Session], seconds: float) -> float:
    before = sum(session.tally.num_tokens for session in sessions)
    start_s = world.now_s
    world.run(start_s + seconds)
    return (sum(session.tally.num_tokens for session in sessions) - before) / (world.now_s - start_s)


@pytest.mark.parametrize("acceptance", [0.5, 0.7])
def test_a_load_step_switches_once_each_way(acceptance) -> None:
    world, measurements = World(), Measurements(A100)
    world.acceptance = acceptance
    first = Session(world, adaptive(measurements))
    alone = rate_between(world, [first], 5.0)
    others = [Session(world, adaptive(measurements)) for _ in range(63)]
    world.run(world.now_s + 2.0)
    assert rate_between(world, [first, *others], 3.0) >= 0.98 * throughput(64, acceptance, lambda: Fixed(0))
    counts = measurements.counts
    assert (counts.num_switches_off, counts.num_switches_on) == (1, 0)
    for session in others:
        session.stop()
    world.run(world.now_s + 0.5)
    assert rate_between(world, [first], 5.0) >= 0.95 * alone
    assert (counts.num_switches_off, counts.num_switches_on) == (1, 1)


class Client:
    """Sends a request when the last one was answered."""

    def __init__(self, world: World, make) -> None:
        self.world, self.make = world, make
        self.is_stopped = False
        self.session = Session(world, make(), 192)
        self.look()

    def look(self) -> None:
        if self.is_stopped:
            self.session.stop()
            return
        if self.session.num_remaining <= 0:
            self.session = Session(self.world, self.make(), 192)
        self.world.after(0.002, self.look)


@pytest.mark.parametrize("profile", [A100, None], ids=["profile", "no_profile"])
def test_requests_that_end_together_are_no_change_of_load(profile) -> None:
    world, measurements = World(), Measurements(profile)
    world.acceptance = 0.4
    clients = [Client(world, lambda: adaptive(measurements, k=8))]
    world.run(3.0)
    clients += [Client(world, lambda: adaptive(measurements, k=8)) for _ in range(63)]
    world.run(8.0)
    counts = measurements.counts
    assert (counts.num_switches_off, counts.num_switches_on) == (1, 0)
    for client in clients[1:]:
        client.is_stopped = True
    world.run(9.0)  # the last peak is forgotten after half a second, and a run asks again after 16 tokens
    assert (counts.num_switches_off, counts.num_switches_on) == (1, 1)
    world.run(12.0)
    assert counts.num_switches_off == 1


def test_drafts_that_go_bad_are_dropped_and_found_again() -> None:
    world, measurements = World(), Measurements(A100)
    world.acceptance = 0.8
    sessions = [Session(world, adaptive(measurements))]
    assert rate_between(world, sessions, 5.0) > 2.2 * 123
    world.acceptance = 0.02
    world.run(world.now_s + 2.0)
    assert rate_between(world, sessions, 5.0) > 0.97 * 123
    world.acceptance = 0.8
    # A probe of two tokens every four seconds by now, which fails by chance one time in three.
    world.run(world.now_s + 15.0)
    assert rate_between(world, sessions, 5.0) > 2.2 * 123


def test_off_by_load_drafts_nothing_and_costs_nothing() -> None:
    measurements = Measurements(A100)
    off = throughput(128, 0.9, lambda: Fixed(0))
    assert throughput(128, 0.9, lambda: adaptive(measurements)) >= 0.99 * off
    decisions = measurements.counts.decisions
    assert decisions[Reason.PROBE] == 0
    assert decisions[Reason.LOAD] + decisions[Reason.ROUND_TIME] > 0.8 * decisions.total()


def test_a_drafter_that_is_slower_than_the_target_is_soon_left_alone() -> None:
    """As a head on the same two cores: a draft token takes as long as a decode step. The next request knows."""
    slow = dataclasses.replace(A100, draft=A100.target)
    measurements = Measurements(None)
    plain = throughput(1, 0.8, lambda: Fixed(0))
    for num_tokens, least in ((128, 0.85), (256, 0.97)):
        world = World(slow)
        session = Session(world, adaptive(measurements), num_tokens)
        while session.num_remaining > 0:
            world.run(world.now_s + 0.001)
        assert num_tokens / world.now_s >= least * plain
