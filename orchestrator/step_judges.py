"""What the target thinks of a step of reasoning that a draft model wrote (SpecReason, 2504.07891).

A judgement is made of the commands that there are, on a sequence of its own: the prefix cache holds what is committed,
and afterwards the step, too. It is asked for elsewhere when its replica is lost.
"""

from __future__ import annotations

import dataclasses
import statistics
from abc import ABC, abstractmethod
from typing import NamedTuple

import msgspec

from orchestrator.answers.sequence import Sequence
from orchestrator.prompt_scoring import PromptScorer
from orchestrator.requests.request import GenerationRequest
from pilotfish.config import StepsConfig
from pilotfish.errors import InternalError, InvalidRequestError
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.types import SamplingParams, TokenLogprobs

_MOST_BIAS = 100.0
"""Bias of the scale's answers: makes all other tokens as good as impossible."""
_LEAST_LOGPROB = -1.0


class Judgement(NamedTuple):
    """What the target thinks of one step."""

    mark: float
    """The higher the better."""
    logprobs: tuple[TokenLogprobs, ...] = ()
    """One per token, where the request wants them."""


class StepJudge(ABC):
    """Asks what the target thinks of steps."""

    def __init__(self, scorer: PromptScorer, least_mark: float) -> None:
        self._scorer = scorer
        self.least_mark = least_mark
        """Steps are kept from this mark on, where the request has no threshold."""

    @abstractmethod
    async def judge(self, sequence: Sequence, step: tuple[int, ...]) -> Judgement:
        """The judgement of a step that would follow the committed tokens. Raises PilotfishError."""

    async def _logprobs(self, sequence: Sequence, step: tuple[int, ...]) -> tuple[TokenLogprobs, ...]:
        """Log-probabilities of the step's tokens, with as many others as the request wants."""
        num_logprobs = sequence.request.sampling.num_logprobs or 0
        sampling = msgspec.structs.replace(sequence.request.sampling, num_logprobs=num_logprobs)
        found = await self._scorer.logprobs(_prompt(sequence, step, sampling), sequence.length)
        if len(found) < len(step):
            raise InternalError("the target returns no log-probabilities")
        return tuple(each for each in found if each is not None)


class ScoreJudge(StepJudge):
    """Judges by the target's answer to a question behind the step: a place on a scale."""

    def __init__(self, scorer: PromptScorer, tokenizer: Tokenizer, config: StepsConfig) -> None:
        """Raises InvalidRequestError for a tokenizer that has no token of its own for each answer."""
        super().__init__(scorer, config.least_score)
        self._question = tuple(tokenizer.encode(config.question, add_special_tokens=False))
        answers = [tokenizer.encode(answer, add_special_tokens=False) for answer in config.scale]
        self._scores = {token_ids[0]: score for score, token_ids in enumerate(answers) if len(token_ids) == 1}
        if len(self._scores) < len(answers):
            raise InvalidRequestError(
                "the model has no token for each answer of orchestrator.speculation.steps.scale, so it gives no "
                "scores: use logprob",
                param="step_judge",
            )

    async def judge(self, sequence: Sequence, step: tuple[int, ...]) -> Judgement:
        bias = tuple((token_id, _MOST_BIAS) for token_id in self._scores)
        sampling = SamplingParams(temperature=0, max_tokens=1, logit_bias=bias)
        token_id = await self._scorer.next_token(_prompt(sequence, step + self._question, sampling))
        if token_id not in self._scores:
            raise InternalError(f"the target's score is token {token_id}, which is not on the scale")
        wants_logprobs = sequence.request.sampling.num_logprobs is not None
        return Judgement(self._scores[token_id], await self._logprobs(sequence, step) if wants_logprobs else ())


class LogprobJudge(StepJudge):
    """Judges by the mean log-probability of the step's tokens."""

    def __init__(self, scorer: PromptScorer) -> None:
        super().__init__(scorer, _LEAST_LOGPROB)

    async def judge(self, sequence: Sequence, step: tuple[int, ...]) -> Judgement:
        logprobs = await self._logprobs(sequence, step)
        wants_logprobs = sequence.request.sampling.num_logprobs is not None
        return Judgement(statistics.fmean(each.logprob for each in logprobs), logprobs if wants_logprobs else ())


def _prompt(sequence: Sequence, token_ids: tuple[int, ...], sampling: SamplingParams) -> GenerationRequest:
    """The committed tokens and these as a prompt."""
    return dataclasses.replace(
        sequence.request, prompt_token_ids=(*sequence.tokens_since(0), *token_ids), sampling=sampling
    )
