"""A target that is asked step by step, over toy replicas."""

from __future__ import annotations

import pytest

from orchestrator.answers.sequence import Sequence
from orchestrator.rounds.commands import Acquire, Acquired, Arrived, Command, Open
from orchestrator.rounds.round import Round
from orchestrator.rounds.target import Target
from pilotfish.messages import Verdict
from pilotfish.types import LoadReport, SamplingParams
from tests.support.memory_pool import MemoryPool
from tests.support.pure_rounds import PureLink
from tests.support.toy_model import continuation

PROMPT = (1, 2, 3)


class Asked:
    """A target, and what it has said."""

    def __init__(self, sequence: Sequence, *links: PureLink, timeout_s: float = 5.0, preferred: str = "") -> None:
        self.sequence, self.pool = sequence, MemoryPool(*links)
        self.out: list[Command] = []
        self.target = Target(self.pool, sequence, self.out, acquire_timeout_s=timeout_s, preferred=preferred)

    def said(self, kind: type) -> list:
        found = [command for command in self.out if isinstance(command, kind)]
        self.out.clear()
        return found

    def open_on(self, link: PureLink, now_s: float = 0.0) -> None:
        self.target.hear(Acquired(link), now_s)
        (opening,) = self.said(Open)
        assert opening.peer.replica is link

    def hear(self, message, now_s: float = 0.0) -> Verdict | None:
        assert self.target.peer is not None
        verdict = self.target.hear(Arrived(self.target.peer, message, now_s, LoadReport()), now_s)
        if verdict is not None:
            self.sequence.commit(verdict)
        return verdict

    def next_token(self) -> Verdict:
        length = self.sequence.length
        return Verdict(1, length, 0, 0, continuation(self.sequence.tokens_since(0), 1))


@pytest.fixture
def links() -> tuple[PureLink, PureLink]:
    return PureLink("a"), PureLink("b")


@pytest.fixture
def asked(sequence_of, links) -> Asked:
    """For ten tokens, and open on the first link."""
    asked = Asked(sequence_of(PROMPT, SamplingParams(temperature=0, max_tokens=500)), *links)
    asked.target.ask(Round(3, 10, credit_tokens=64), 0.0)
    assert len(asked.said(Acquire)) == 1
    asked.open_on(links[0])
    return asked
