"""How much is drafted ahead, by the pool's load and by what it is worth."""

from __future__ import annotations

import pytest

from orchestrator.rounds.drafter_clients.predraft_policy import BLOCK_ROUNDS, PredraftPolicy
from pilotfish.types import LoadReport, ModelInfo

MODEL = ModelInfo(model_id="m", tokenizer_fingerprint="t", vocab_size=10, max_context_tokens=100, proposer="model")
IDLE = LoadReport()


def model(**changes) -> ModelInfo:
    fields = {name: getattr(MODEL, name) for name in ModelInfo.__struct_fields__}
    return ModelInfo(**{**fields, **changes})


def test_off_and_on() -> None:
    assert PredraftPolicy("off", 60).budget(MODEL, IDLE, 5) == 0
    assert PredraftPolicy("on", 0).budget(MODEL, IDLE, 5) == PredraftPolicy("auto", 0).budget(MODEL, IDLE, 5) == 0
    assert PredraftPolicy("on", 60).budget(MODEL, LoadReport(num_sequences_waiting=9), 5) == 60


@pytest.mark.parametrize(
    ("load", "budget"),
    [
        (LoadReport(), 60),
        (LoadReport(num_sequences_decoding=4), 60),
        (LoadReport(num_sequences_decoding=16), 20),
        (LoadReport(num_sequences_decoding=64), 5),
        (LoadReport(num_sequences_decoding=65), 0),
        (LoadReport(num_sequences_waiting=1), 0),
        (LoadReport(draining=True), 0),
    ],
)
def test_it_shrinks_as_the_pool_gets_busy(load: LoadReport, budget: int) -> None:
    assert PredraftPolicy("auto", 60).budget(MODEL, load, 5) == budget


def blocks(
    policy: PredraftPolicy, count: int, ahead_s: float, plain_s: float, num_tokens: tuple[int, int] = (3, 3)
) -> list[bool]:
    """Whether each block of rounds drafts ahead, each round taking as long as its kind does. num_tokens: those of each
    kind's rounds, with drafting ahead and without."""
    kinds = []
    for _ in range(count):
        is_ahead = policy.chooses_ahead()
        for _ in range(BLOCK_ROUNDS - 1):
            policy.add_round(ahead_s if is_ahead else plain_s, num_tokens[not is_ahead], is_ahead=is_ahead)
        kinds.append(is_ahead)
    return kinds


def test_where_a_token_takes_longer_it_stops_and_looks_again() -> None:
    policy = PredraftPolicy("auto", 60)
    kinds = blocks(policy, 400, ahead_s=0.012, plain_s=0.010)
    assert sum(kinds[-200:]) < 20
    assert any(kinds[-200:])
    assert sum(blocks(policy, 1000, ahead_s=0.008, plain_s=0.010)[-200:]) > 180


def test_rounds_must_be_as_much_shorter_as_they_give_fewer_tokens() -> None:
    assert sum(blocks(PredraftPolicy("auto", 60), 400, 0.0098, 0.010)[-200:]) > 180
    assert sum(blocks(PredraftPolicy("auto", 60), 400, 0.0098, 0.010, (3, 4))[-200:]) < 20
    assert sum(blocks(PredraftPolicy("auto", 60), 400, 0.0070, 0.010, (3, 4))[-200:]) > 180


def test_a_round_that_stood_still_decides_nothing() -> None:
    policy = PredraftPolicy("auto", 60)
    blocks(policy, 100, ahead_s=0.009, plain_s=0.010)
    policy.add_round(60.0, 3, is_ahead=True)
    assert sum(blocks(policy, 200, ahead_s=0.009, plain_s=0.010)) > 180


def test_rare_rounds_count_as_much_as_they_take_and_give() -> None:
    """Slow ones, and those that give nearly all tokens: an average that cuts them off says that both ways are equal."""
    slow, rich = PredraftPolicy("auto", 60), PredraftPolicy("auto", 60)
    for _ in range(20):
        for place in range(10):
            slow.add_round(0.030 if place == 4 else 0.010, 3, is_ahead=True)
            slow.add_round(0.0108, 3, is_ahead=False)
            rich.add_round(0.010, 21 if place == 4 else 1, is_ahead=True)
            rich.add_round(0.010, 3, is_ahead=False)
    assert sum(slow.chooses_ahead() for _ in range(100)) < 20
    assert sum(rich.chooses_ahead() for _ in range(100)) > 80


@pytest.mark.parametrize("mode", ["on", "auto"])
@pytest.mark.parametrize("changes", [{"proposer": "suffix"}, {"proposer": "medusa", "feature_layers": (30,)}])
def test_who_cannot_or_need_not_is_not_asked(mode, changes) -> None:
    assert PredraftPolicy(mode, 60).budget(model(**changes), IDLE, 5) == 0


def test_a_head_that_follows_its_own_states_is_asked() -> None:
    head = model(proposer="eagle3", feature_layers=(1, 2, 3))
    assert PredraftPolicy("on", 60).budget(head, IDLE, 5) == 60


def test_one_slow_answer_hardly_changes_what_asking_takes_and_many_do() -> None:
    policy = PredraftPolicy("auto", 60)
    assert policy.ask_s == 0
    for _ in range(20):
        policy.add_ask(0.010)
    policy.add_ask(1.0)
    assert 0.010 < policy.ask_s < 0.011
    for _ in range(60):
        policy.add_ask(0.050)
    assert policy.ask_s == pytest.approx(0.050, rel=0.1)
