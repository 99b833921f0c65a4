"""What the target thinks of a prompt: the log-probabilities of the prompt's own tokens, or the token behind it.

A target returns those of what it verifies. So the prompt goes to it as drafts, a block at a time, each on a sequence of
its own: the blocks before it are in the prefix cache, and so is the whole prompt when the answer begins.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import abc
from collections.abc import Callable

from orchestrator.answers.output import AnswerText
from orchestrator.answers.sequence import Sequence
from orchestrator.replicas.exchange import ReplicaExchange, TargetPool
from orchestrator.requests.request import GenerationRequest
from orchestrator.rounds.commands import Command
from orchestrator.rounds.draft import NO_DRAFT, Draft
from orchestrator.rounds.round import Round
from orchestrator.rounds.target import Target
from pilotfish.errors import InternalError
from pilotfish.messages import Verdict
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.types import BLOCK_SIZE, MAX_TOP_K, AcceptanceMode, SamplingParams, TokenLogprobs

_FLATTENING_TEMPERATURE = 100.0
"""A temperature at which no token's probability is 0, so that every draft stands; log-probabilities are without it."""

_MAX_UNREAD = 8
"""Unread messages of a block, at most: it has two, that it is opened, and its verdict."""


Scores = tuple[TokenLogprobs | None, ...]
"""One score for each token of a prompt; empty where the target returns none."""


class PromptScores:
    """The scores of one request's prompts. The first of several answers to a prompt has it scored; the others wait."""

    def __init__(self) -> None:
        self._scores: dict[tuple[int, ...], asyncio.Future[Scores]] = {}
        self._scored_by: list[GenerationRequest] = []

    def is_scored_by(self, request: GenerationRequest) -> bool:
        """Whether it is this one that the prompt was read for."""
        # Answers to one request share its id.
        return any(each is request for each in self._scored_by)

    async def logprobs(self, request: GenerationRequest, scorer: PromptScorer, spend: Callable[[int], None]) -> Scores:
        """See `PromptScorer.logprobs`. spend: called with the number of tokens that the target reads for it."""
        token_ids = request.prompt_token_ids
        known = self._scores.get(token_ids)
        if known is not None:
            return await asyncio.shield(known)
        self._scored_by.append(request)
        scores = self._scores[token_ids] = asyncio.get_running_loop().create_future()
        try:
            spend(len(token_ids))
            found = await scorer.logprobs(request)
        except BaseException:
            scores.cancel()  # all answers of the request end with this one
            raise
        scores.set_result(found)
        return found


class PromptScorer:
    """Scores prompts, each on its own. Raises what Target.hear does."""

    def __init__(
        self, pool: TargetPool, tokenizer: Tokenizer, *, max_draft_tokens: int, acquire_timeout_s: float
    ) -> None:
        """max_draft_tokens: the most that all targets take at once."""
        self._pool = pool
        self._tokenizer = tokenizer
        self._acquire_timeout_s = acquire_timeout_s
        # Whole blocks of the KV cache, where possible: then none is computed twice.
        self._block_tokens = max_draft_tokens // BLOCK_SIZE * BLOCK_SIZE or max_draft_tokens

    async def logprobs(self, request: GenerationRequest, begin: int = 0) -> Scores:
        """One score for each token of the prompt from `begin` on: the prompt's first token has none. Empty where the
        target returns none, as an emulated one."""
        token_ids = request.prompt_token_ids
        logprobs: list[TokenLogprobs | None] = [] if begin else [None]
        start = begin or 1
        while start < len(token_ids):
            block = await self._scored(request, start, token_ids[start : start + self._block_tokens])
            if not block:
                return ()
            logprobs.extend(block)
            start += len(block)
        return tuple(logprobs)

    async def next_token(self, request: GenerationRequest) -> int:
        """The first token of the answer."""
        return (await self._verdict(request, NO_DRAFT)).token_ids[0]

    async def _scored(
        self, request: GenerationRequest, start: int, token_ids: tuple[int, ...]
    ) -> abc.Sequence[TokenLogprobs]:
        """Scores of the first of token_ids, the prompt's from `start` on: as many as the replica takes at once."""
        num_logprobs = request.num_prompt_logprobs
        sampling = SamplingParams(
            temperature=_FLATTENING_TEMPERATURE,
            acceptance=AcceptanceMode.TOLERANCE,
            tolerance_top_k=MAX_TOP_K,
            tolerance_delta=1.0,
            max_tokens=len(token_ids) + 1,  # that of the target's own included
            num_logprobs=request.sampling.num_logprobs if num_logprobs is None else num_logprobs,
        )
        context = dataclasses.replace(request, prompt_token_ids=request.prompt_token_ids[:start], sampling=sampling)
        verdict = await self._verdict(context, Draft(token_ids))
        num_scored = verdict.num_draft_tokens
        if verdict.logprobs and (not num_scored or verdict.token_ids[:num_scored] != token_ids[:num_scored]):
            raise InternalError("the target has not scored the prompt")
        return verdict.logprobs[:num_scored]

    async def _verdict(self, request: GenerationRequest, draft: Draft) -> Verdict:
        sequence, out = Sequence(request, AnswerText(self._tokenizer, request)), list[Command]()
        target = Target(self._pool, sequence, out, acquire_timeout_s=self._acquire_timeout_s)
        exchange = ReplicaExchange(self._pool, acquire_timeout_s=self._acquire_timeout_s, max_unread=_MAX_UNREAD)
        try:
            target.ask(Round(sequence.length, draft=draft), time.monotonic())
            verdict: Verdict | None = None
            while verdict is None:
                exchange.run(out)
                out.clear()
                verdict = target.hear(await exchange.next(), time.monotonic())
            return verdict
        finally:
            target.close()
            exchange.run(out)
            exchange.close()
