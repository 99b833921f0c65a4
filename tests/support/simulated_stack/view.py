"""What the orchestrator's machine looks at of replicas whose time is virtual, and what it writes to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from orchestrator.answers.output import OutputChunk
from pilotfish.messages import Verdict
from pilotfish.step_table import StepTable
from pilotfish.types import Limits, LoadReport, ModelInfo


class Loaded(Protocol):
    """A replica."""

    load: LoadReport
    """Its last report."""


class NoText:
    """Output whose text nobody reads."""

    def push(self, verdict: Verdict) -> OutputChunk:
        return OutputChunk(
            text="",
            token_ids=verdict.token_ids,
            origins=(),
            logprobs=(),
            round_draft_tokens=(),
            num_accepted_tokens=verdict.num_accepted_tokens,
            finish_reason=verdict.finish_reason,
            stopped_by="",
        )


@dataclass(frozen=True, slots=True)
class View:
    """A replica as the machine sees it: see orchestrator.rounds.peer.Replica."""

    replica_id: str
    replica: Loaded
    model: ModelInfo
    limits: Limits
    ids: Callable[[], int]
    is_connected = is_healthy = True
    num_other_sequences = 0

    @property
    def load(self) -> LoadReport:
        return self.replica.load

    @property
    def step_table(self) -> StepTable:
        return self.replica.load.step_table

    def serves(self, sequence_id: int) -> bool:
        return True

    def new_sequence_id(self) -> int:
        return self.ids()


class Pool:
    """Of one replica."""

    absence_reason = ""
    is_full = False

    def __init__(self, view: View) -> None:
        self.view = view

    def pick(self, avoid: Collection[str] = ()) -> View:
        return self.view
