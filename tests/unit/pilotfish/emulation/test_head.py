"""An emulated target with a head of its own."""

from __future__ import annotations

import pytest

from pilotfish.emulation.core import EmulatedCore
from pilotfish.emulation.language_model import HashLanguageModel
from pilotfish.emulation.profiles import RooflineCost
from pilotfish.messages import Decode, Event, OpenSequence, Verdict
from pilotfish.speculation.cost import expected_tokens_by_position
from pilotfish.types import AcceptanceMode, Limits, ModelInfo, SamplingParams, TreeRequest

VERIFY = RooflineCost(weights_s=0.010, token_s=0.0)
PASS = RooflineCost(weights_s=0.001, token_s=0.0)
GREEDY = SamplingParams(temperature=0, max_tokens=1000)
PROMPT = (1, 2, 3)


class Target:
    """Decodes one answer, step by step."""

    def __init__(self, acceptance: float = 0.8, *, step_cost: RooflineCost = VERIFY, head: bool = True) -> None:
        model = ModelInfo(
            model_id="emulated", tokenizer_fingerprint="", vocab_size=256, max_context_tokens=4096, proposer="eagle3"
        )
        limits = Limits(max_draft_tokens=16, max_sequences=64)
        self.core = EmulatedCore(
            model,
            limits,
            HashLanguageModel(),
            acceptance=acceptance,
            step_cost=step_cost,
            head_cost=PASS if head else None,
        )
        self.steps_s: list[float] = []
        self.token_ids: dict[int, list[int]] = {}

    def decode(
        self,
        k: int,
        tree: TreeRequest | None = None,
        sampling: SamplingParams = GREEDY,
        num_sequences: int = 1,
        num_tokens: int = 1000,
    ) -> None:
        for number in range(num_sequences):
            self.core.submit(OpenSequence(number, (*PROMPT, number), sampling))
            self.core.submit(Decode(number, len(PROMPT) + 1, num_tokens, k, tree=tree))
        while self.core.has_work:
            self.take(self.core.step())
            self.steps_s.append(self.core.step_s)

    def take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Verdict):
                self.token_ids.setdefault(event.sequence_id, []).extend(event.token_ids)

    @property
    def tokens_per_step(self) -> float:
        return sum(map(len, self.token_ids.values())) / len(self.token_ids) / len(self.steps_s)


def text(sampling: SamplingParams = GREEDY) -> list[int]:
    plain = Target(head=False)
    plain.decode(0, sampling=sampling)
    return plain.token_ids[0]


@pytest.mark.parametrize("k", [1, 4])
def test_a_step_takes_the_verification_and_a_pass_for_each_draft_token(k: int) -> None:
    target = Target()
    target.decode(k)
    assert target.steps_s[1] == pytest.approx(0.010 + 0.001 * k)
    assert target.tokens_per_step == pytest.approx(expected_tokens_by_position((0.8,), k), rel=0.06)


@pytest.mark.parametrize("tree", [None, TreeRequest(12, 3)])
@pytest.mark.parametrize(
    "sampling",
    [
        GREEDY,
        SamplingParams(seed=5, max_tokens=1000),
        SamplingParams(seed=5, max_tokens=1000, acceptance=AcceptanceMode.REJECTION),
    ],
)
def test_its_drafts_change_no_text(sampling: SamplingParams, tree: TreeRequest | None) -> None:
    target = Target()
    target.decode(4, tree, sampling)
    assert target.token_ids[0] == text(sampling)


def test_a_tree_has_the_next_best_guesses_as_well() -> None:
    chain, tree = Target(0.7), Target(0.7)
    chain.decode(4)
    tree.decode(4, TreeRequest(12, 3))
    assert tree.tokens_per_step > 1.1 * chain.tokens_per_step
    assert tree.steps_s[1] == chain.steps_s[1], "a pass for each level"


def test_one_pass_serves_all_sequences() -> None:
    target = Target()
    target.decode(4, num_sequences=8)
    assert target.steps_s[1] == pytest.approx(0.014)


def test_who_does_not_speculate_costs_a_pass_for_each_block() -> None:
    target = Target()
    target.decode(0, num_tokens=64)
    assert len([step_s for step_s in target.steps_s if step_s > 0.0105]) == 4
    assert max(target.steps_s) == pytest.approx(0.011)


def test_chains_are_no_longer_than_pays() -> None:
    """A row costs a tenth of a step, and few drafts are accepted."""
    target = Target(0.3, step_cost=RooflineCost(weights_s=0.0, token_s=0.001))
    target.decode(8)
    assert max(target.steps_s[1:]) < 0.006


def test_first_tokens_leave_before_the_head_drafts() -> None:
    target, left = Target(), []
    target.core.send_first = lambda events: left.append((target.core.step_s, events))
    target.decode(4, num_tokens=40)
    ((after_s, events),) = left
    assert after_s == pytest.approx(0.010)
    assert sum(len(event.token_ids) for event in events if isinstance(event, Verdict)) == 1
