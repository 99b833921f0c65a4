"""Whatever happens, and in whatever order, the client gets the model's own text, and nothing stays open."""

from __future__ import annotations

import random
from collections import abc, deque
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from orchestrator.answers.output import AnswerText
from orchestrator.answers.sequence import Sequence
from orchestrator.control.controller import Controller
from orchestrator.control.in_target_controller import InTargetController
from orchestrator.control.replica_state import ControlState
from orchestrator.requests.request import GenerationRequest, Mode, SpeculationOptions
from orchestrator.rounds.commands import Command
from orchestrator.rounds.drafter_clients.branching import CHAINS, Branching
from orchestrator.rounds.drafter_clients.drafter_client import DrafterClient, InTargetClient
from orchestrator.rounds.drafter_clients.feature_feed import FeatureFeed
from orchestrator.rounds.drafter_clients.lookup_budget import LookupBudget
from orchestrator.rounds.drafter_clients.lookup_drafter import LookupDrafter
from orchestrator.rounds.drafter_clients.lookup_first import LookupFirst
from orchestrator.rounds.drafter_clients.predraft_policy import PredraftPolicy
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter
from orchestrator.rounds.machine import RoundMachine
from orchestrator.rounds.target import Target
from pilotfish.config import SpeculationConfig
from pilotfish.drafters.ngram.draft import NgramIndex
from pilotfish.messages import Decode, SequenceError
from pilotfish.speculation.lookup.sequence import SequenceLookup
from pilotfish.types import Grammar, GrammarKind, SamplingParams, SequenceErrorCode, TreeRequest
from tests.support.memory_pool import MemoryPool
from tests.support.pure_rounds import PureLink, PureRequest
from tests.support.toy_model import continuation
from tests.unit.orchestrator.conftest import ToyTokenizer

PROMPT = (1, 2, 3)
NUM_TOKENS = 40
MAX_TARGET_FAULTS = 3
"""A verdict that has failed on a fourth replica is an error."""
MAX_EVENTS = 3000
NUM_LIVES = 30
"""Tried in each case."""
DRAFTERS = (
    "remote",
    "remote tree",
    "remote ahead",
    "tree or remote ahead",
    "lookup",
    "lookup, then remote ahead",
    "in target",
)


_FAULTS = (
    SequenceErrorCode.UNKNOWN_SEQUENCE,
    SequenceErrorCode.STALE,
    SequenceErrorCode.UNAVAILABLE,
    SequenceErrorCode.INTERNAL,
)
"""Of which another replica knows nothing."""


def forced_behind(token_ids: abc.Sequence[int]) -> tuple[int, ...]:
    """At some places three tokens, of which the last one may be wrong."""
    room = len(PROMPT) + NUM_TOKENS - len(token_ids) - 1
    forced = continuation(token_ids, min(3, room)) if token_ids[-1] % 3 == 0 else ()
    return (*forced[:-1], forced[-1] - forced[-1] % 2) if forced else ()


class World:
    """Two targets, two drafters, and a request over them."""

    def __init__(
        self,
        drafter: str,
        mode: Mode,
        *,
        step_by_step: bool,
        credit_tokens: int = 512,
        has_grammar: bool = False,
        **rules: Any,
    ) -> None:
        self.targets = MemoryPool(PureLink("target-a"), PureLink("target-b"))
        self.drafts = MemoryPool(PureLink("draft-a"), PureLink("draft-b"))
        for link in self.targets.links:
            link.decodes_step_by_step = step_by_step
            link.step_s = 1.0  # verifications are steps under way as well
            link.model = msgspec.structs.replace(link.model, proposer="eagle3")
            link.forced = forced_behind
        for link in self.drafts.links:
            link.drafts_ahead = drafter.endswith("remote ahead")
        request = GenerationRequest(
            prompt_token_ids=PROMPT,
            sampling=SamplingParams(
                temperature=0, max_tokens=NUM_TOKENS, grammar=Grammar(GrammarKind.REGEX, "x*") if has_grammar else None
            ),
            speculation=SpeculationOptions(mode=mode),
            num_speculative_tokens=4,
        )
        out: list[Command] = []
        sequence = Sequence(request, AnswerText(ToyTokenizer(), request))  # type: ignore[arg-type]
        self.control = ControlState(SpeculationConfig(decode_run_tokens=8, **rules))
        made = self._drafter(drafter, out)
        controller = InTargetController if made.is_in_target else Controller
        features = FeatureFeed()
        machine = RoundMachine(
            sequence,
            controller(request, self.control),
            made,
            Target(self.targets, sequence, out, acquire_timeout_s=1e9, features=features),
            out,
            credit_tokens=credit_tokens,
        )
        self.request = PureRequest(machine, self.targets, self.drafts)

    def _drafter(self, kind: str, out: list[Command]) -> DrafterClient:
        if kind == "in target":
            return InTargetClient("eagle3", "eagle3")
        lookup = LookupDrafter(SequenceLookup(NgramIndex(1, 3), len(PROMPT)), LookupBudget(1000), out)
        if kind == "lookup":
            return lookup
        branching = {
            "remote tree": Branching(TreeRequest(8, 2)),
            "tree or remote ahead": Branching(TreeRequest(8, 2), lambda _, max_nodes: 0.1),
        }.get(kind, CHAINS)
        mode = "auto" if kind.startswith("tree or") else "on"
        predraft = PredraftPolicy(mode, 48) if kind.endswith("remote ahead") else None
        remote = RemoteDrafter(self.drafts, lambda _: 0.5, out, branching=branching, predraft=predraft)
        if not kind.startswith("lookup"):
            return remote
        return LookupFirst("ngram", lookup, remote, min_accepted_tokens=1.0, max_tokens=8)

    def assert_nothing_is_left(self) -> None:
        for link in self.request.links:
            assert not link.mailboxes
            assert not link.tokens
        assert not any(replica.own.num for replica in self.control.replicas.values())


class Life:
    """Chooses what happens next."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self._world, self._request, self._dice = world, world.request, dice
        self._num_target_faults = 0

    def run(self, num_events: int = MAX_EVENTS) -> None:
        """Until the request is over, or so many events have happened."""
        for _ in range(num_events):
            if self._request.is_over:
                return
            self._dice.choice(self._possible())()
        assert num_events < MAX_EVENTS, "the request does not come to its end"

    def _possible(self) -> list[Callable[[], None]]:
        request = self._request
        happens: list[Callable[[], None]] = []
        for link in request.links:
            if link.on_the_way:
                happens += [lambda link=link: request.deliver(link)] * 4
            if link.steps:
                happens += [lambda link=link: link.steps.popleft()()] * 4
        if request.acquire is not None:
            happens += [request.find_target] * 4
        happens += [lambda alarm=alarm: request.wake(alarm) for alarm in request.alarms]
        assert happens, "nothing can happen any more"
        faults = [fault for link in self._world.drafts.links for fault in self._draft_faults(link)]
        if self._num_target_faults < MAX_TARGET_FAULTS:
            faults += [fault for link in self._world.targets.links for fault in self._target_faults(link)]
        return faults if faults and self._dice.random() < 0.15 else happens

    def _draft_faults(self, link: PureLink) -> list[Callable[[], None]]:
        request = self._request
        faults: list[Callable[[], None]] = [lambda: request.lose(link), lambda: _flip(link)]
        if link.on_the_way:
            faults += [
                lambda: request.deliver(link, again=True),
                lambda: link.on_the_way.popleft() and None,
                lambda: self._refuse(link),
            ]
        return faults

    def _target_faults(self, link: PureLink) -> list[Callable[[], None]]:
        request = self._request

        def counted(fault: Callable[[], None]) -> Callable[[], None]:
            def strike() -> None:
                self._num_target_faults += 1
                fault()

            return strike

        faults = [counted(lambda: request.lose(link)), counted(lambda: _flip(link))]
        if link.on_the_way and not isinstance(link.on_the_way[0], SequenceError):
            faults += [counted(lambda: request.deliver(link, again=True)), counted(lambda: self._refuse(link))]
        return faults

    def _refuse(self, link: PureLink) -> None:
        """An error comes in place of the message, and the replica knows the sequence no more."""
        message = link.on_the_way.popleft()
        error = SequenceError(message.sequence_id, self._dice.choice(_FAULTS), "a fault")
        link.tokens.pop(message.sequence_id, None)
        link.goal_lengths.pop(message.sequence_id, None)
        link.on_the_way = deque(each for each in link.on_the_way if each.sequence_id != message.sequence_id)
        link.on_the_way.append(error)


def _flip(link: PureLink) -> None:
    link.is_draining = not link.is_draining


@pytest.mark.parametrize("step_by_step", [True, False])
@pytest.mark.parametrize("mode", ["on", "auto", "off"])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_any_interleaving_gives_the_models_own_text(drafter: str, mode: Mode, step_by_step: bool) -> None:
    for seed in range(NUM_LIVES):
        world = World(drafter, mode, step_by_step=step_by_step)
        Life(world, random.Random(seed)).run()
        assert tuple(world.request.token_ids) == continuation(PROMPT, NUM_TOKENS), seed
        world.assert_nothing_is_left()


@pytest.mark.parametrize("step_by_step", [True, False])
@pytest.mark.parametrize("mode", ["on", "auto", "off"])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_so_it_is_where_the_target_drafts_what_a_grammar_forces(drafter: str, mode: Mode, step_by_step: bool) -> None:
    num_drafted = 0
    for seed in range(NUM_LIVES):
        world = World(drafter, mode, step_by_step=step_by_step, has_grammar=True)
        Life(world, random.Random(seed)).run()
        assert tuple(world.request.token_ids) == continuation(PROMPT, NUM_TOKENS), seed
        world.assert_nothing_is_left()
        sequence = world.request.machine.sequence
        num_drafted += sequence.num_grammar_draft_tokens
        assert sequence.num_grammar_accepted_tokens <= sequence.num_grammar_draft_tokens
        assert sequence.num_plain_tokens + sequence.statistics.num_accepted_tokens <= NUM_TOKENS
    assert bool(num_drafted) == (mode != "off")


@pytest.mark.parametrize("drafter", ["lookup", "in target"])
def test_under_a_rule_for_the_batch_size_nothing_of_a_grammar_is_drafted(drafter: str) -> None:
    rules = {"num_speculative_tokens_per_batch_size": ((1, 100, 0),), "first_chunk_tokens": 1}
    world = World(drafter, "auto", step_by_step=True, has_grammar=True, **rules)
    request, link = world.request, world.targets.links[0]
    request.find_target()
    while not request.is_over:
        if link.steps:
            link.steps.popleft()()
        while link.on_the_way:
            request.deliver(link)
    later = [command for command in link.commands if isinstance(command, Decode) and command.base_length > 20]
    assert later
    assert not any(command.takes_forced_drafts for command in later)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_request_that_is_left_frees_everything(drafter: str) -> None:
    for seed in range(NUM_LIVES):
        world, dice = World(drafter, "on", step_by_step=True), random.Random(seed)
        Life(world, dice).run(dice.randrange(60))
        world.request.close()
        told = tuple(world.request.token_ids)
        assert told == continuation(PROMPT, NUM_TOKENS)[: len(told)]
        world.assert_nothing_is_left()


def test_a_run_is_extended_before_it_ends_and_never_beyond_the_answer() -> None:
    world = World("lookup", "off", step_by_step=True, credit_tokens=16)
    request, link = world.request, world.targets.links[0]
    request.find_target()
    while not request.is_over:
        if link.steps:
            link.steps.popleft()()
        if any(len(tokens) < len(PROMPT) + NUM_TOKENS for tokens in link.tokens.values()):
            assert link.goal_lengths, "the target stands still"
        while link.on_the_way:
            request.deliver(link)
    runs = [command for command in link.commands if isinstance(command, Decode)]
    assert len(runs) > 1
    assert max(run.base_length + run.num_tokens for run in runs) == len(PROMPT) + NUM_TOKENS


@pytest.mark.parametrize(("drafter", "waits"), [("remote", True), ("lookup", False), (DRAFTERS[-2], False)])
def test_behind_its_first_token_a_request_is_load_and_tokens_wait_unless_a_lookup_may_cut_in(drafter, waits) -> None:
    world = World(drafter, "off", step_by_step=True)
    request, link = world.request, world.targets.links[0]
    request.find_target()
    while not request.token_ids:
        request.deliver(link)
    assert [replica.own.num for replica in world.control.replicas.values()] == [1]
    assert (request.machine.num_idle_tokens > 0) == waits
