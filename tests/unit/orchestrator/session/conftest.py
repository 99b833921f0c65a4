"""A target pool and a draft pool in memory, and sessions over them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import pytest

from orchestrator.answers.output import OutputChunk, OutputText
from orchestrator.answers.sequence import Sequence
from orchestrator.control.controller import Controller, InTargetController
from orchestrator.control.replica_state import ControlState
from orchestrator.drafting.drafter import InTargetDrafter
from orchestrator.drafting.lookup_drafter import LookupDrafter
from orchestrator.drafting.remote_drafter import RemoteDrafter
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from orchestrator.session import Session
from orchestrator.target import RemoteTarget
from pilotfish.config import DraftConfig, SpeculationConfig
from pilotfish.config.target import IN_TARGET_DRAFTERS
from pilotfish.speculation.lookup.lookups import LOOKUPS
from pilotfish.types import SamplingParams

PROMPT = (1, 2, 3)
LOOKUP_CONFIG = DraftConfig(prompt_lookup_min=1, prompt_lookup_max=3)


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

    def session(
        self, mode="on", k=4, max_tokens=40, stop=(), stop_token_ids=(), proposer="draft", run=1024, tree=None
    ) -> Session:
        request = GenerationRequest(
            prompt_token_ids=PROMPT,
            sampling=SamplingParams(temperature=0, max_tokens=max_tokens, stop_token_ids=stop_token_ids),
            speculation=SpeculationOptions(mode=mode, proposer=proposer),
            num_speculative_tokens=k,
            stop=stop,
        )
        if proposer in LOOKUPS:
            drafter = LookupDrafter(LOOKUPS[proposer](LOOKUP_CONFIG)(), num_prompt_tokens=len(PROMPT), tree=tree)
        elif proposer in IN_TARGET_DRAFTERS:
            drafter = InTargetDrafter(proposer, self.target_a.model.proposer)
        else:
            drafter = RemoteDrafter(self.drafts, lambda _: self.deadline_s, tree=tree)
        controller = InTargetController if proposer in IN_TARGET_DRAFTERS else Controller
        return Session(
            Sequence(request, OutputText(self.tokenizer, request)),
            controller(request, self.control),
            drafter,
            RemoteTarget(
                self.targets,
                acquire_timeout_s=1,
                max_run_tokens=run,
                tree=tree,
            ),
        )

    def assert_nothing_is_left(self) -> None:
        for link in (*self.targets.links, *self.drafts.links):
            assert not link.mailboxes
            assert not link.tokens

    @staticmethod
    async def collect(session: Session) -> list[OutputChunk]:
        """The whole answer."""
        async with contextlib.aclosing(session.run()) as chunks:
            return [chunk async for chunk in chunks]

    async def tokens(self, session: Session) -> tuple[int, ...]:
        """Of the whole answer."""
        return self.tokens_of(await self.collect(session))

    @staticmethod
    def tokens_of(chunks: Iterable[OutputChunk]) -> tuple[int, ...]:
        return tuple(token_id for chunk in chunks for token_id in chunk.token_ids)


@pytest.fixture
def world(memory_pool, memory_link, toy_tokenizer) -> World:
    return World(memory_pool, memory_link, toy_tokenizer)
