"""The whole of what is decided between steps, in virtual time: an engine with measured costs, and a lookup's drafts as
they were recorded (recorded_drafts.json: for each position of 13 answers, the tokens of the suffix drafter's draft and
those of them that vLLM says)."""

from __future__ import annotations

import json
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from orchestrator.drafting.ahead_policy import AheadPolicy
from pilotfish.config import TelemetryConfig
from pilotfish.integrations.vllm import asker as asker_module
from pilotfish.integrations.vllm.asker import Asker
from pilotfish.integrations.vllm.counters import ProposerCounters
from pilotfish.integrations.vllm.drafting import Drafting
from pilotfish.integrations.vllm.pace import Pace
from pilotfish.integrations.vllm.row_trace import RowTracing
from pilotfish.integrations.vllm.step import DraftingStep
from pilotfish.integrations.vllm.unused_drafts import ShadowFate
from pilotfish.messages import CloseSequence, OpenSequence

K = 8
BUSY_S = 3.0
"""Spells of a machine that does other things beside: up to a quarter faster and slower."""
PROMPT_TOKENS = 4
Text = Sequence[tuple[int, int]]
"""For each position: the tokens of a draft, and those of them that are right."""
RECORDED: list[Text] = json.loads((Path(__file__).parent / "recorded_drafts.json").read_text())
WEAK: list[Text] = [([(8, 0)] * 15 + [(8, 1)]) * 8] * 40
"""One hit in 16."""
HOPELESS: list[Text] = [[(8, 0)] * 128] * 20


@dataclass
class Row:
    text: Text
    slot: int
    position: int = 0
    row_id: int = 0
    shadow: tuple[int, int, int] | None = None
    """Where it was asked for, its tokens, and the right ones."""

    def token_id(self, position: int) -> int:
        return 1000 * (self.slot + 1) + position

    def draft(self) -> list[int]:
        num_tokens, num_right = self.text[self.position - 1]
        return [self.token_id(self.position + at) if at < num_right else 0 for at in range(num_tokens)]


@dataclass
class Background:
    """Answers at once; what a step takes is the engine's to say."""

    rows: list[Row] = field(default_factory=list)
    counters: ProposerCounters = field(default_factory=ProposerCounters)
    shadows: deque[ShadowFate] = field(default_factory=deque)
    is_ready = is_usable = True
    has_lost_rows = False
    asked: str = "none"

    def begin(self, step: DraftingStep) -> None:
        self.asked = "none" if not step.num_draft_tokens else "wait" if step.is_waited_for else "shadow"
        for slot, (row, told) in enumerate(zip(self.rows, step.batch.rows, strict=True)):
            row.row_id = told.row_id
            self._settle(row)
            if self.asked == "wait":
                row.shadow = None
                step.answer(slot, row.draft()[: step.num_draft_tokens])
            elif self.asked == "shadow" and row.shadow is None:
                row.shadow = (row.position, *row.text[row.position - 1])
        step.expect(())

    def _settle(self, row: Row) -> None:
        if row.shadow is None:
            return
        asked_at, num_tokens, num_right = row.shadow
        num_new = row.position - asked_at
        if num_new > num_right or num_right == num_tokens <= num_new:
            self.shadows.append(ShadowFate(row.row_id, num_tokens, num_right))
            row.shadow = None


class Engine:
    """vLLM on two cores: a plain step of one row takes 20 ms, of eight 24."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_measuring: bool = True) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(asker_module, "time", SimpleNamespace(perf_counter=lambda: self.now_s))
        self.background = Background()
        self.asker = Asker(self.background, Pace(0.0, K, is_measuring=is_measuring))  # type: ignore[arg-type]
        self.random = random.Random(0)
        self.token_ids = np.zeros((64, 256), dtype=np.int32)
        self.plain_s = 0.0
        """What the same texts take without drafts."""

    def run(self, texts: Sequence[Text], num_rows: int) -> float:
        """Its speed over that without drafts: all texts, so many at a time."""
        start_s, plain_before_s = self.now_s, self.plain_s
        for start in range(0, len(texts), num_rows):
            self._run_batch(texts[start : start + num_rows])
        return (self.plain_s - plain_before_s) / (self.now_s - start_s)

    def _run_batch(self, texts: Sequence[Text]) -> None:
        rows = [Row(text, slot) for slot, text in enumerate(texts)]
        self.token_ids[:] = self.random.randrange(1, 900)
        drafts: list[list[int]] = [[] for _ in rows]
        while rows:
            sampled = [self._verified(row, draft) for row, draft in zip(rows, drafts, strict=True)]
            kept = [slot for slot, row in enumerate(rows) if row.position < len(row.text)]
            self._take(len(rows), sum(map(len, drafts)), sum(map(len, sampled)))
            rows, sampled = [rows[slot] for slot in kept], [sampled[slot] for slot in kept]
            if rows:
                drafts = self._propose(rows, sampled)

    def _verified(self, row: Row, draft: list[int]) -> list[int]:
        num_right = 0
        while num_right < len(draft) and draft[num_right] == row.token_id(row.position + num_right):
            num_right += 1
        num_new = min(num_right + 1, len(row.text) - row.position)
        new = [row.token_id(row.position + at) for at in range(num_new)]
        row.position += num_new
        return new

    def _propose(self, rows: list[Row], sampled: list[list[int]]) -> list[list[int]]:
        table = np.stack([self.token_ids[0]] * len(rows))
        lengths = [PROMPT_TOKENS + row.position for row in rows]
        for at, row in enumerate(rows):
            table[at, 0] = row.slot + 1
            table[at, PROMPT_TOKENS : lengths[at]] = [row.token_id(position) for position in range(row.position)]
        self.background.rows, self.background.asked = rows, "none"
        drafts = self.asker.drafts(sampled, lengths, table)
        self.now_s += {"wait": 0.0015, "shadow": 0.001, "none": 0.0}[self.background.asked]
        return drafts

    def _take(self, num_rows: int, num_draft_tokens: int, num_tokens: int) -> None:
        """Time passes: verifying is nearly free for one row, and dear for eight."""
        base_s = 0.02 + 0.0006 * (num_rows - 1)
        per_token_s = 0.0003 if num_rows == 1 else 0.0009
        busy = 1 + 0.25 * math.sin(self.now_s / BUSY_S)
        noise = self.random.uniform(0.95, 1.05)
        self.now_s += (base_s + per_token_s * num_draft_tokens) * noise * busy
        self.plain_s += base_s * busy * num_tokens / num_rows


class TellingBackground(Background):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[DraftingStep] = []

    def begin(self, step: DraftingStep) -> None:
        self.steps.append(step)
        step.expect(())


class OneThread(Background):
    """Drafts from a replica that never answers, on the thread of the test."""

    def __init__(self, link: Any) -> None:
        super().__init__()
        self.link = link
        pool: Any = SimpleNamespace(links=(link,), pick=lambda: link)
        policy, tracing = AheadPolicy("off", 0), RowTracing(TelemetryConfig())
        self.drafting = Drafting(pool, policy, self.counters, tracing, 100, note_shadow=self.shadows.append)

    def begin(self, step: DraftingStep) -> None:
        self.drafting.begin(step)

    @property
    def num_open(self) -> int:
        """Sequences that the replica holds."""
        kinds = [type(command) for command in self.link.commands]
        return kinds.count(OpenSequence) - kinds.count(CloseSequence)


class NeverPace(Pace):
    """No step asks."""

    def num_draft_tokens(self, num_rows: int) -> int:
        return 0

    def wants_shadow(self, num_rows: int) -> bool:
        return False


@pytest.fixture
def engine(monkeypatch) -> Engine:
    return Engine(monkeypatch)


def test_at_one_row_hits_that_come_in_bursts_are_not_missed(engine, monkeypatch) -> None:
    measured = engine.run(RECORDED * 4, 1)
    always = Engine(monkeypatch, is_measuring=False).run(RECORDED * 4, 1)
    assert always > 1.3
    assert measured > 0.98 * always


def test_hits_after_a_long_pause_are_noticed_within_an_answer(engine) -> None:
    engine.run(HOPELESS, 1)
    assert engine.background.counters.num_pauses > 0
    burst: Text = [(0, 0)] * 40 + [(8, 8)] * 88
    assert engine.run([burst], 1) > 1.3


def test_where_verifying_is_dear_only_likely_tokens_are_verified(engine, monkeypatch) -> None:
    engine.run(RECORDED[:8], 8)
    assert engine.run(RECORDED[:8] * 4, 8) > 1.02
    assert Engine(monkeypatch, is_measuring=False).run(RECORDED[:8] * 4, 8) < 0.95


@pytest.mark.parametrize("num_rows", [1, 8])
def test_drafts_that_are_always_wrong_lose_little(engine, num_rows: int) -> None:
    assert engine.run(HOPELESS * 2, num_rows) > 0.97
    assert engine.run(HOPELESS * 2, num_rows) > 0.98


@pytest.mark.parametrize("num_rows", [1, 8])
def test_drafts_that_hit_now_and_then_lose_little(engine, num_rows: int) -> None:
    engine.run(WEAK, num_rows)
    assert engine.run(WEAK, num_rows) > 0.977


def test_however_long_steps_take_the_drafter_hears_of_them(engine) -> None:
    background = TellingBackground()
    asker = Asker(background, NeverPace(0.0, K, is_measuring=True))  # type: ignore[arg-type]
    for length in range(5, 45):
        asker.drafts([[0]], [length], engine.token_ids)
        engine.now_s += 0.3
    assert len(background.steps) == 8
    assert {len(step.told) for step in background.steps} == {5}


async def test_a_fault_leaves_no_row_on_the_replica_that_has_ended(link, monkeypatch) -> None:
    background = OneThread(link)
    asker = Asker(background, Pace(0.0, K, is_measuring=False))  # type: ignore[arg-type]
    token_ids = np.array([[1] * 64, [2] * 64], dtype=np.int32)
    asker.drafts([[1], [2]], [5, 5], token_ids)
    for length in range(6, 14):  # the second row is away for as long as one may be
        asker.drafts([[1]], [length], token_ids)
    assert background.num_open == 2
    with monkeypatch.context() as fault:
        fault.setattr(Pace, "advance", None)
        asker.drafts([[1]], [14], token_ids)
    assert background.counters.num_faults == 1
    asker.drafts([[1]], [15], token_ids)
    assert background.num_open == 1


def test_a_fault_loses_nothing_that_was_to_be_told(engine) -> None:
    background = TellingBackground()
    asker = Asker(background, Pace(0.0, K, is_measuring=True))  # type: ignore[arg-type]
    asker.drafts([[0]], [5], engine.token_ids)
    asker.drafts([[0]], [6], None)  # type: ignore[arg-type]
    assert background.counters.num_faults == 1
    asker.drafts([[0]], [7], engine.token_ids)
    (step,) = background.steps
    assert [[row.row_id for row in told.batch.rows] for told in step.told] == [[1], [2]]
    assert [told.batch.begins_anew for told in step.told] == [False, True]
