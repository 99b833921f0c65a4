"""A target replica and its requests in virtual time: every decision is carried out, and its controller told."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from orchestrator.control.controller import Controller
from orchestrator.control.decision import Decision, RoundResult
from orchestrator.control.in_target_controller import InTargetController
from orchestrator.control.replica_state import ControlState
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from pilotfish.config import SpeculationConfig
from pilotfish.step_table import StepTable
from pilotfish.types import SamplingParams

PROBLEM = "a proposal missed its deadline"
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)


def table_of(step_s: Callable[[float], float]) -> StepTable:
    return StepTable(ROWS, tuple(round(1e9 * step_s(rows)) for rows in ROWS))


class VirtualReplica:
    """Everything that is not read from the controllers may be changed at any time."""

    def __init__(
        self,
        *,
        base_s: float = 0.01,
        row_s: float = 0.0002,
        table_factor: float = 1.0,
        state: ControlState | None = None,
        replica_id: str = "a",
        **config: Any,
    ) -> None:
        """A step takes base_s and row_s a row. table_factor: by which the table that it publishes is wrong."""
        self.state = state or ControlState(SpeculationConfig(**config))
        self.replica_id = replica_id
        self.table = table_of(lambda rows: table_factor * (base_s + row_s * rows))
        self.base_s, self.row_s = base_s, row_s
        self.acceptance, self.answered = 0.7, 1.0
        self.draft_token_s, self.overhead_s = 0.0005, 0.001
        """Of a round: for each draft token, and beside its step."""
        self.in_target_token_s = 0.007
        self.nodes_per_level = 1
        self.contention = 1.0
        """How much longer steps are while anybody drafts: its table follows, as a target's does."""
        self._table_scale = self._contention_before = 1.0
        self._table_s = 0.0
        self.prefill_s = 0.0
        """Of every round."""
        self.pause_s = 0.0
        """After every round, for a client that does not read."""
        self.failing, self.wait_s = 0.0, 0.02
        """Share of the proposals that fail, and after how long."""
        self.facts: dict[str, Any] = {}
        """Told with every result."""
        self.now_s = 0.0
        self.num_begun = 0
        self.requests: list[VirtualRequest] = []

    def begin(
        self,
        mode: str = "auto",
        k: int = 5,
        max_tokens: int = 10**6,
        proposer: str = "draft",
        kind: type = Controller,
        says_mode: bool = False,
    ) -> VirtualRequest:
        request = GenerationRequest(
            prompt_token_ids=(1,),
            sampling=SamplingParams(max_tokens=max_tokens),
            speculation=SpeculationOptions(mode=mode, proposer=proposer),
            says_mode=says_mode,
            num_speculative_tokens=k,
        )
        self.num_begun += 1
        self.requests.append(VirtualRequest(self, kind(request, self.state), max_tokens))
        return self.requests[-1]

    def begin_many(self, num_requests: int, **values: Any) -> Sequence[VirtualRequest]:
        return [self.begin(**values) for _ in range(num_requests)]

    def end(self, *requests: VirtualRequest) -> None:
        """Their clients have gone; without any named: all."""
        for request in requests or tuple(self.requests):
            self.requests.remove(request)
            request.controller.close()

    def run(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.requests:
            request = min(self.requests, key=lambda request: request.ready_s)
            if request.ready_s > until_s:
                break
            self.now_s = request.ready_s
            request.finish_round()
        self.now_s = until_s

    def speed_over_plain(self, request: VirtualRequest, seconds: float) -> float:
        """Tokens per second of the request from now on, over plain decoding's."""
        before = request.num_tokens
        self.run(seconds)
        return (request.num_tokens - before) * (self.base_s + self.row_s * len(self.requests)) / seconds

    def step_s(self) -> float:
        return self._contention_now * (self.base_s + self.row_s * sum(request.num_rows for request in self.requests))

    def published_table(self) -> StepTable:
        if self.contention == 1.0:
            return self.table
        num_steps = (self.now_s - self._table_s) / (self.base_s * self._contention_before)
        self._table_scale += (1 - 0.9**num_steps) * (self._contention_before - self._table_scale)
        self._table_s, self._contention_before = self.now_s, self._contention_now
        return StepTable(ROWS, tuple(round(self._table_scale * ns) for ns in self.table.step_ns))

    @property
    def _contention_now(self) -> float:
        return self.contention if any(request.latest.num_draft_tokens for request in self.requests) else 1.0


class VirtualRequest:
    """One that decodes on a replica."""

    def __init__(self, replica: VirtualReplica, controller: Controller, max_tokens: int) -> None:
        self.controller, self._replica, self._max_tokens = controller, replica, max_tokens
        self.num_tokens, self.num_rows = 0, 1
        self.acceptance: float | None = None
        """Of its drafts; None: as on the replica."""
        self.decisions: list[Decision] = []
        self._luck = random.Random(replica.num_begun)
        self.ready_s = replica.now_s
        self._outcome: dict[str, Any] = {}
        """Of the round under way."""
        self._decide(self._result())

    @property
    def latest(self) -> Decision:
        return self.decisions[-1]

    def reasons(self, first: int = 0) -> Counter[str]:
        """Of the decisions from this one on."""
        return Counter(decision.reason for decision in self.decisions[first:])

    def finish_round(self) -> None:
        """It is over: the next one begins, or the request ends."""
        self.num_tokens += self._outcome["num_committed_tokens"]
        result = self._result()
        if result.num_remaining_tokens > 0:
            self._decide(result)
        else:
            self.controller.end(result)
            self._replica.end(self)

    def _result(self) -> RoundResult:
        replica = self._replica
        told = {"replica_id": replica.replica_id if self.num_tokens else "", "step_table": replica.published_table()}
        return RoundResult(
            now_s=replica.now_s,
            num_output_tokens=self.num_tokens,
            num_remaining_tokens=self._max_tokens - self.num_tokens,
            **(told | self._outcome | replica.facts),
        )

    def _decide(self, result: RoundResult) -> None:
        decision = self.controller.decide(result)
        self.decisions.append(decision)
        if isinstance(self.controller, InTargetController):
            self._outcome = self._in_target(decision)
        elif decision.num_draft_tokens:
            self._outcome = self._draft(decision)
        else:
            self._outcome = self._decode(decision)
        waited_s = self._outcome["propose_s"] + self._outcome["target_s"]
        self.ready_s = self._replica.now_s + waited_s + self._replica.pause_s

    def _draft(self, decision: Decision) -> dict[str, Any]:
        replica, depth = self._replica, decision.num_draft_tokens
        if self._luck.random() < replica.failing:
            return self._decode(decision, replica.wait_s) | {"draft_problem": PROBLEM}
        draft_s = replica.draft_token_s * depth
        if self._luck.random() >= replica.answered:
            return self._decode(decision, draft_s)
        self.num_rows = replica.nodes_per_level * depth + 1
        acceptance = replica.acceptance if self.acceptance is None else self.acceptance
        num_accepted = next((n for n in range(depth) if self._luck.random() >= acceptance), depth)
        return {
            "num_requested_tokens": depth,
            "num_draft_tokens": replica.nodes_per_level * depth,
            "draft_depth": depth if replica.nodes_per_level > 1 else 0,
            "num_accepted_tokens": num_accepted,
            "num_committed_tokens": num_accepted + 1,
            "propose_s": draft_s,
            "draft_compute_s": draft_s,
            "target_s": replica.step_s() + replica.overhead_s + replica.prefill_s,
            "prefill_s": replica.prefill_s,
        }

    def _decode(self, decision: Decision, propose_s: float = 0.0) -> dict[str, Any]:
        """A plain run; propose_s: what it waited for no proposal."""
        self.num_rows = 1
        num_tokens, token_s = decision.num_decode_tokens, self._replica.step_s()
        return {
            "num_requested_tokens": decision.num_draft_tokens,
            "num_plain_tokens": num_tokens,
            "num_committed_tokens": num_tokens,
            "propose_s": propose_s,
            "target_s": num_tokens * token_s + self._replica.prefill_s,
            "prefill_s": self._replica.prefill_s,
            "plain_token_s": token_s,
        }

    def _in_target(self, decision: Decision) -> dict[str, Any]:
        """A run of whole rounds, drafted in the target or plain."""
        num_tokens, is_drafted = decision.num_decode_tokens, decision.num_draft_tokens > 0
        token_s = self._replica.in_target_token_s if is_drafted else self._replica.step_s()
        return {
            "num_requested_tokens": decision.num_draft_tokens,
            "num_plain_tokens": 0 if is_drafted else num_tokens,
            "num_committed_tokens": num_tokens,
            "propose_s": 0.0,
            "target_s": num_tokens * token_s + self._replica.prefill_s,
            "prefill_s": self._replica.prefill_s,
            "plain_token_s": token_s,
        }


@pytest.fixture
def virtual_replica() -> type[VirtualReplica]:
    return VirtualReplica


@pytest.fixture
def table() -> StepTable:
    """10 ms a step, and 0.2 ms a row."""
    return table_of(lambda rows: 0.01 + 0.0002 * rows)
