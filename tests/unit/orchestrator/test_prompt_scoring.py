import asyncio
from typing import Any

from orchestrator.prompt_scoring import PromptScores
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from pilotfish.errors import UnavailableError
from pilotfish.types import SamplingParams


def request_of(*token_ids: int) -> GenerationRequest:
    return GenerationRequest(
        prompt_token_ids=token_ids,
        sampling=SamplingParams(),
        speculation=SpeculationOptions(),
        num_speculative_tokens=4,
    )


class Scorer:
    """Scores when it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.may_tell = asyncio.Event()
        self.num_asked = 0
        self._error = error

    async def logprobs(self, request: GenerationRequest) -> Any:
        self.num_asked += 1
        await self.may_tell.wait()
        if self._error is not None:
            raise self._error
        return (None, len(request.prompt_token_ids))


async def test_a_prompt_is_scored_and_paid_once_however_many_answers_there_are() -> None:
    scores, scorer, spent = PromptScores(), Scorer(), list[int]()
    requests = [request_of(*ids) for ids in ((1, 2), (1, 2), (1, 2, 3), (1, 2))]
    work = [asyncio.create_task(scores.logprobs(each, scorer, spent.append)) for each in requests]
    await asyncio.sleep(0)
    scorer.may_tell.set()
    assert await asyncio.gather(*work) == [(None, 2), (None, 2), (None, 3), (None, 2)]
    assert await scores.logprobs(requests[1], scorer, spent.append) == (None, 2)
    assert scorer.num_asked == 2
    assert spent == [2, 3]
    assert [scores.is_scored_by(each) for each in requests] == [True, False, True, False]


async def test_where_it_fails_nobody_waits_for_ever() -> None:
    scores, scorer = PromptScores(), Scorer(UnavailableError("none"))
    scorer.may_tell.set()
    work = [asyncio.create_task(scores.logprobs(request_of(1), scorer, lambda _: None)) for _ in range(2)]
    results = await asyncio.gather(*work, return_exceptions=True)
    assert isinstance(results[0], UnavailableError)
    assert isinstance(results[1], asyncio.CancelledError)
