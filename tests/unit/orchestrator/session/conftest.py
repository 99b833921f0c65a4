"""A target pool and a draft pool in memory, and sessions over them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable

import pytest

from orchestrator.answers.output import AnswerText, OutputChunk
from orchestrator.answers.sequence import Sequence
from orchestrator.awaited_drafter import AwaitedDrafter
from orchestrator.control.controller import Controller
from orchestrator.control.in_target_controller import InTargetController
from orchestrator.control.replica_state import ControlState
from orchestrator.replicas.exchange import ReplicaExchange
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from orchestrator.rounds.commands import Command
from orchestrator.rounds.drafter_clients.branching import Branching
from orchestrator.rounds.drafter_clients.drafter_client import DrafterClient, InTargetClient
from orchestrator.rounds.drafter_clients.lookup_budget import LookupBudget
from orchestrator.rounds.drafter_clients.lookup_drafter import LookupDrafter
from orchestrator.rounds.drafter_clients.lookup_first import LookupFirst
from orchestrator.rounds.drafter_clients.predraft_policy import PredraftPolicy
from orchestrator.rounds.drafter_clients.remote_drafter import RemoteDrafter
from orchestrator.rounds.machine import RoundMachine
from orchestrator.rounds.round_log import RoundLog
from orchestrator.rounds.target import Target
from orchestrator.session import Session
from orchestrator.step_judges import Judgement, StepJudge
from orchestrator.step_rounds import DraftModels, StepRounds
from pilotfish.config import DraftConfig, SpeculationConfig
from pilotfish.drafter_registry import IN_TARGET_DRAFTERS, LOOKUPS
from pilotfish.messages import Proposal
from pilotfish.speculation.lookup.index import lookup_of
from pilotfish.speculation.lookup.sequence import SequenceLookup
from pilotfish.types import SamplingParams, TreeRequest
from tests.support.toy_model import next_token

PROMPT = (1, 2, 3)
LOOKUP_CONFIG = DraftConfig(prompt_lookup_min=1, prompt_lookup_max=3)


def lookup_drafter(name: str, out: list[Command], tree: TreeRequest | None) -> LookupDrafter:
    lookup = SequenceLookup(lookup_of(name)(LOOKUP_CONFIG)(""), len(PROMPT))
    return LookupDrafter(lookup, LookupBudget(10_000), out, tree=tree)


class World:
    """A target pool, a draft pool, and sessions over them."""

    def __init__(self, pool_type, link_type, tokenizer) -> None:
        self.target_a, self.target_b = link_type("target-a"), link_type("target-b")
        self.draft_a = link_type("draft-a")
        self.targets = pool_type(self.target_a)
        self.drafts = pool_type(self.draft_a)
        self.tokenizer = tokenizer
        self.control = ControlState(SpeculationConfig(decode_run_tokens=8))
        self.deadline_s = 5.0

    def request(
        self, mode="on", k=4, max_tokens=40, stop=(), stop_token_ids=(), proposer="draft", **speculation
    ) -> GenerationRequest:
        return GenerationRequest(
            prompt_token_ids=PROMPT,
            sampling=SamplingParams(temperature=0, max_tokens=max_tokens, stop_token_ids=stop_token_ids),
            speculation=SpeculationOptions(mode=mode, proposer=proposer, **speculation),
            num_speculative_tokens=k,
            stop=stop,
        )

    def session(
        self,
        request: GenerationRequest | None = None,
        *,
        drafter: DrafterClient | None = None,
        steps: StepRounds | None = None,
        predraft: PredraftPolicy | None = None,
        run=1024,
        max_unread=1024,
        tree=None,
        log: RoundLog | None = None,
        lookup: str = "",
        **fields,
    ) -> Session:
        """lookup: before the draft pool."""
        request = request or self.request(**fields)
        proposer, out = request.speculation.proposer, list[Command]()
        if drafter is not None:
            pass
        elif proposer in LOOKUPS:
            drafter = lookup_drafter(proposer, out, tree)
        elif proposer in IN_TARGET_DRAFTERS:
            drafter = InTargetClient(proposer, self.target_a.model.proposer)
        else:
            drafter = RemoteDrafter(
                self.drafts, lambda _: self.deadline_s, out, branching=Branching(tree), predraft=predraft
            )
            if lookup:
                first = lookup_drafter(lookup, out, tree)
                drafter = LookupFirst(lookup, first, drafter, min_accepted_tokens=1.0, max_tokens=8)
        controller = InTargetController if drafter.is_in_target else Controller
        sequence = Sequence(request, AnswerText(self.tokenizer, request))
        self.machine = RoundMachine(
            sequence,
            controller(request, self.control),
            drafter,
            Target(self.targets, sequence, out, acquire_timeout_s=1),
            out,
            credit_tokens=run,
            tree=tree,
            log=log,
            steps=steps,
        )
        exchange = ReplicaExchange(self.targets, acquire_timeout_s=1, max_unread=run + 512)
        return Session(self.machine, exchange, max_unread_tokens=max_unread)

    def assert_nothing_is_left(self) -> None:
        for link in (*self.targets.links, *self.drafts.links):
            assert not link.mailboxes
            assert not link.tokens
        assert not any(replica.own.num for replica in self.control.replicas.values())

    @staticmethod
    async def collect(session: Session) -> list[OutputChunk]:
        """The whole answer."""
        found = []
        async with session.running() as chunks:
            while (chunk := await chunks.take()) is not None:
                found.append(chunk)
        return found

    async def tokens(self, session: Session) -> tuple[int, ...]:
        """Of the whole answer."""
        return self.tokens_of(await self.collect(session))

    @staticmethod
    def tokens_of(chunks: Iterable[OutputChunk]) -> tuple[int, ...]:
        return tuple(token_id for chunk in chunks for token_id in chunk.token_ids)


@pytest.fixture
def world(memory_pool, memory_link, toy_tokenizer) -> World:
    return World(memory_pool, memory_link, toy_tokenizer)


class FakeJudge(StepJudge):
    """Lets every n-th step stand."""

    def __init__(self, stands=(True,)) -> None:
        self.least_mark = 9
        self._stands = itertools.cycle(stands)
        self.accepted: dict[int, tuple[int, ...]] = {}
        """By the committed tokens that they follow."""
        self.judged: list[int] = []

    async def judge(self, sequence, step) -> Judgement:
        self.judged.append(sequence.length)
        if not next(self._stands):
            return Judgement(0)
        self.accepted[sequence.length] = step
        return Judgement(9)


@pytest.fixture
def writer(world, memory_link):
    """A draft model that says what the target would not."""
    link = memory_link("writer")

    def other_words(event):
        if isinstance(event, Proposal):
            drafted = tuple((token_id + 7) % 50 for token_id in event.draft_token_ids)
            return (Proposal(event.sequence_id, event.base_length, drafted),)
        return (event,)

    link.on_event = other_words
    return link


@pytest.fixture
def start(world, memory_pool, writer, toy_tokenizer):
    """Makes a session with steps, and its judge. ends: letters that end a step."""

    def make(
        judge=None,
        ends="ACEGIKMOQSUWY",
        thoughts=None,
        step_max_tokens=20,
        step_tokens=1000,
        deadline_s=5,
        drafter=None,
        log=None,
        **fields,
    ):
        request = world.request(**fields)
        options = dataclasses.replace(
            request.speculation, level="step", step_max_tokens=step_max_tokens, step_tokens=step_tokens
        )
        world.writers = memory_pool(writer)
        world.judge = judge or FakeJudge()
        steps = StepRounds(
            dataclasses.replace(request, speculation=options),
            AwaitedDrafter(lambda out: RemoteDrafter(DraftModels(world.writers), lambda _: deadline_s, out)),
            world.judge,
            token_bytes=toy_tokenizer.token_bytes,
            thoughts=thoughts,
            ends=[end.encode() for end in ends],
        )
        return world.session(request, steps=steps, drafter=drafter, log=log)

    return make


def replayed(accepted, num_tokens):
    """What the target says where no step stood."""
    tokens = list(PROMPT)
    while len(tokens) < len(PROMPT) + num_tokens:
        tokens += accepted.get(len(tokens)) or (next_token(tokens),)
    return tuple(tokens[len(PROMPT) :][:num_tokens])


def assert_all_are_counted(session) -> None:
    stats, sequence = session.speculation_stats, session.sequence
    by_rounds = stats.num_accepted_tokens + stats.num_plain_tokens + stats.num_step_tokens
    # A round has a token of the target's own, but the last may lack it.
    assert sequence.num_output_tokens - by_rounds in (stats.num_rounds, stats.num_rounds - 1)
