"""Turns and warm-up."""

from collections.abc import Sequence

from pilotfish.bench.measurement import Arrival, Measurement
from pilotfish.bench.prompts import Prompt
from pilotfish.bench.runner import TokenisedPrompt, run_arms

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
    assert asked[2:] == ["a0/1", "a0/99", "b0/99", "b0/99", "a0/99", "a1/1", "a1/99", "b1/99", "b1/99", "a1/99"]
    assert num_answers == len(samples) == 8
    assert [(sample.arm, sample.category, sample.prompt_index, sample.turn) for sample in samples[4:6]] == [
        ("a", "math", 1, 4),
        ("b", "math", 1, 4),
    ]
