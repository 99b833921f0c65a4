"""What the target is asked about a step, and what its answer is worth."""

from __future__ import annotations

import pytest

from orchestrator.answers.output import AnswerText
from orchestrator.answers.sequence import Sequence
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from orchestrator.step_judges import ScoreJudge
from pilotfish.config import StepsConfig
from pilotfish.errors import InternalError, InvalidRequestError
from pilotfish.types import SamplingParams

PROMPT, STEP = (1, 2, 3), (4, 5)
TOKENS = {" right?": [30, 31], "no": [20], "perhaps": [21], "yes": [22], "surely": [23, 24]}
CONFIG = StepsConfig(question=" right?", scale=("no", "perhaps", "yes"), least_score=2)


class WordTokenizer:
    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return TOKENS[text]


class Scorer:
    def __init__(self, answer: int) -> None:
        self.answer = answer
        self.asked: list[GenerationRequest] = []

    async def next_token(self, request: GenerationRequest) -> int:
        self.asked.append(request)
        return self.answer


def sequence(toy_tokenizer) -> Sequence:
    request = GenerationRequest(
        prompt_token_ids=PROMPT,
        sampling=SamplingParams(),
        speculation=SpeculationOptions(),
        num_speculative_tokens=4,
    )
    return Sequence(request, AnswerText(toy_tokenizer, request))


async def test_the_configured_question_follows_the_step_and_the_answers_place_is_the_score(toy_tokenizer) -> None:
    for score, answer in enumerate((20, 21, 22)):
        scorer = Scorer(answer)
        judge = ScoreJudge(scorer, WordTokenizer(), CONFIG)
        judgement = await judge.judge(sequence(toy_tokenizer), STEP)
        assert (judgement.mark, judge.least_mark) == (score, 2)
        (asked,) = scorer.asked
        assert asked.prompt_token_ids == (*PROMPT, *STEP, 30, 31)
        # Emulated targets know the best answer by its being the last.
        assert [token_id for token_id, _ in asked.sampling.logit_bias] == [20, 21, 22]


async def test_an_answer_that_is_not_on_the_scale_is_no_score(toy_tokenizer) -> None:
    with pytest.raises(InternalError, match="token 7, which is not on the scale"):
        await ScoreJudge(Scorer(7), WordTokenizer(), CONFIG).judge(sequence(toy_tokenizer), STEP)


@pytest.mark.parametrize("scale", [("no", "surely"), ("no", "yes", "no again")])
def test_a_scale_without_a_token_for_each_answer_is_refused_by_its_key(scale, monkeypatch) -> None:
    monkeypatch.setitem(TOKENS, "no again", [20])
    with pytest.raises(InvalidRequestError, match=r"speculation\.steps\.scale") as refused:
        ScoreJudge(Scorer(20), WordTokenizer(), StepsConfig(question=" right?", scale=scale, least_score=1))
    assert refused.value.param == "step_judge"
