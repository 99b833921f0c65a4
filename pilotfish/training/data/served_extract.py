"""Feature extraction from a running target, whatever its size and weights: only its output projection is here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import torch
from torch import Tensor, nn

from pilotfish.errors import DeadlineExceededError, ResourceExhaustedError, UnavailableError
from pilotfish.rpc.link_security import LinkSecurity
from pilotfish.training.data.conversations import Conversation
from pilotfish.training.data.extract import Extractor
from pilotfish.training.data.samples import Sample
from pilotfish.training.data.target_states import TargetStates, WantedStates

_CHUNK_ROWS = 256
"""Rows whose logits over the whole vocabulary are in memory at once."""
_RETRY_WAITS_S = (1.0, 2.0, 4.0, 8.0)
"""A target that was restarted is back after some seconds."""
_AFTERMATH_S = 0.1
"""Time for gRPC to end: it reports cancelled calls a moment later, and takes a closed loop for an error then."""
_PASSING = (UnavailableError, ResourceExhaustedError, DeadlineExceededError)


class ServedExtractor(Extractor):
    """As FeatureExtractor, of a target that runs elsewhere. Use it as a context manager."""

    def __init__(
        self,
        wanted: WantedStates,
        projection: nn.Module,
        security: LinkSecurity,
        max_tokens: int,
        *,
        retry_waits_s: Sequence[float] = _RETRY_WAITS_S,
    ) -> None:
        """wanted: the layers of features, then the number of layers. projection: the target's output projection.
        max_tokens: the most of a conversation; longer ones are cut at their end."""
        self._wanted = wanted
        self._projection = projection
        self._security = security
        self._max_tokens = max_tokens
        self._retry_waits_s = retry_waits_s
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(asyncio.sleep(_AFTERMATH_S))
        self._runner.close()

    def extract(self, conversations: Sequence[Conversation]) -> list[Sample]:
        """The samples of the conversations, in order; those with no answer within max_tokens are left out.

        Raises: what TargetStates does, after a few tries where a lost target may come back.
        """
        return self._runner.run(self._extract(conversations))

    async def _extract(self, conversations: Sequence[Conversation]) -> list[Sample]:
        samples: dict[int, Sample] = {}
        for wait_s in self._retry_waits_s:
            try:
                await self._add(samples, conversations)
                return _in_order(samples)
            except _PASSING:
                await asyncio.sleep(wait_s)
        try:
            await self._add(samples, conversations)
        except _PASSING as error:
            raise type(error)(
                f"{error}. What was done is kept: run the same command again when the target is back"
            ) from error
        return _in_order(samples)

    async def _add(self, samples: dict[int, Sample], conversations: Sequence[Conversation]) -> None:
        """Add the samples that are missing, by their conversation's number."""
        try:
            async with TargetStates.connect(self._wanted, self._security) as states, asyncio.TaskGroup() as group:
                max_tokens = min(self._max_tokens, states.max_tokens)
                for number, conversation in enumerate(conversations):
                    if number not in samples and conversation.prompt_len < max_tokens:
                        cut = Conversation(conversation.prompt_len, conversation.token_ids[:max_tokens])
                        group.create_task(self._read(states, cut, number, samples))
        except ExceptionGroup as group_of:
            # Whichever came first: the others were cancelled, or lost the same connection.
            raise group_of.exceptions[0] from None

    async def _read(
        self, states: TargetStates, conversation: Conversation, number: int, samples: dict[int, Sample]
    ) -> None:
        hidden = await states.read(conversation.token_ids)
        # On a thread: the connection is served meanwhile, and the target has work.
        samples[number] = await asyncio.to_thread(self._sample, conversation, hidden)

    @torch.inference_mode()
    def _sample(self, conversation: Conversation, states: Tensor) -> Sample:
        """states: [T, F + 1, H], those behind the last layer at the end."""
        first = conversation.prompt_len - 1
        answer_hidden = states[first:, -1]
        num_tokens = len(conversation.token_ids)
        choices = torch.full((num_tokens,), -1)
        log_mass = torch.zeros(num_tokens)
        for rows in torch.split(torch.arange(first, num_tokens), _CHUNK_ROWS):
            logits = self._projection(states[rows, -1].to(next(self._projection.parameters())))
            choices[rows] = logits.argmax(-1).cpu()
            log_mass[rows] = logits.float().logsumexp(-1).cpu()
        return Sample(
            conversation.prompt_len,
            torch.tensor(conversation.token_ids),
            states[:, :-1].flatten(1),
            answer_hidden.contiguous(),
            choices,
            log_mass,
        )


def _in_order(samples: Mapping[int, Sample]) -> list[Sample]:
    return [samples[number] for number in sorted(samples)]
