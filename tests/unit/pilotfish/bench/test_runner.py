"""Turns, warm-up and scores."""

from collections.abc import Sequence

from pilotfish.bench.arms import PilotfishArm, Variant
from pilotfish.bench.measurement import Arrival, Measurement
from pilotfish.bench.prompts import Prompt
from pilotfish.bench.runner import TokenisedPrompt, run_arms
from pilotfish.bench.scoring import Scorer
from pilotfish.client.answer import GenerateOptions
from pilotfish.client.inference import InferenceClient

PROMPTS = [TokenisedPrompt(Prompt(category, category), (number,)) for number, category in enumerate(("qa", "math"))]


class FakeArm:
    """Answers with its prompt's token, and writes down who was asked when."""

    def __init__(self, name: str, asked: list[str]) -> None:
        self.name = name
        self._asked = asked

    def answer(self, prompt_token_ids: Sequence[int], *, max_tokens: int) -> Measurement:
        self._asked.append(f"{self.name}{prompt_token_ids[0]}/{max_tokens}")
        return Measurement(token_ids=tuple(prompt_token_ids), arrivals=(Arrival(0.1, 1),))


def test_arms_take_turns_and_each_comes_first() -> None:
    asked: list[str] = []
    num_answers = 0

    def count() -> None:
        nonlocal num_answers
        num_answers += 1

    arms = [FakeArm("a", asked), FakeArm("b", asked)]
    samples = run_arms(arms, PROMPTS, max_tokens=99, turns=(4, 5), on_answer=count)
    assert asked[:2] == ["a0/16", "b0/16"]
    assert asked[2:] == ["a0/99", "b0/99", "b0/99", "a0/99", "a1/99", "b1/99", "b1/99", "a1/99"]
    assert num_answers == len(samples) == 8
    assert [(sample.arm, sample.category, sample.prompt_index, sample.turn) for sample in samples[4:6]] == [
        ("a", "math", 1, 4),
        ("b", "math", 1, 4),
    ]


class ScoredArm(PilotfishArm):
    """A Pilotfish arm with a canned answer."""

    def __init__(self, variant: Variant, token_ids: tuple[int, ...], logprobs: tuple[float, ...]) -> None:
        super().__init__(InferenceClient("127.0.0.1:1"), variant, common=GenerateOptions(), timeout_s=1)
        self._canned = token_ids, logprobs
        self.num_scored = 0

    def answer(self, prompt_token_ids: Sequence[int], *, max_tokens: int) -> Measurement:
        return Measurement(token_ids=self._canned[0], arrivals=(Arrival(0.1, len(self._canned[0])),))

    def logprobs(
        self, prompt_token_ids: Sequence[int], *, max_tokens: int
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        self.num_scored += 1
        return self._canned


def test_equal_answers_share_plain_decodings_score_and_others_are_scored() -> None:
    plain = ScoredArm(Variant(), (5, 6), (-1.0, -3.0))
    same = ScoredArm(Variant("ngram", 3), (5, 6), ())
    other = ScoredArm(Variant("model", 3), (5, 7), (-1.0, -7.0))
    peer = FakeArm("peer", [])
    samples = run_arms(
        [plain, same, other, peer], PROMPTS[:1], max_tokens=2, scorer=Scorer(plain), on_answer=lambda: None
    )
    assert {sample.arm: sample.mean_logprob for sample in samples} == {
        "plain": -2.0,
        "ngram K=3": -2.0,
        "model K=3": -4.0,
        "peer": None,
    }
    assert (plain.num_scored, same.num_scored, other.num_scored) == (1, 0, 1)
