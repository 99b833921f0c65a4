"""Hidden states of texts, from a running target: a text is opened there as a prompt, piece by piece, and the verdict on
one decoded token brings the features of a piece.

Shapes: T tokens of a text, F layers that are wanted, H hidden size.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pilotfish.engine.core.feature_store import MAX_FEATURE_TOKENS
from pilotfish.errors import DeadlineExceededError, HandshakeError, PilotfishError, UnavailableError
from pilotfish.features import FeatureRequest, Features
from pilotfish.messages import CloseSequence, Decode, Event, OpenSequence, SequenceError, Verdict
from pilotfish.models.feature_codec import decode_features
from pilotfish.rpc.channel import MAX_MESSAGE_BYTES
from pilotfish.rpc.handshake import Hello
from pilotfish.rpc.link_security import LinkSecurity
from pilotfish.rpc.stream import MuxStream
from pilotfish.types import BLOCK_SIZE, ModelInfo, SamplingParams

_NUM_TEXTS = 8
"""Texts that are read at once, so that the target's steps are full."""
_PIECE_BYTES = MAX_MESSAGE_BYTES // 2 // _NUM_TEXTS
"""The most bytes of one piece: the target may send the pieces of all texts in one frame."""
_ANSWER_TIMEOUT_S = 300.0
"""Wait for one piece: users' requests may have the target's KV cache first."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class WantedStates:
    """What a target must serve."""

    address: str
    """Host and port of its stream."""
    model_id: str
    """A target of another name is taken, as it may be the same model quantised, and named in the log."""
    tokenizer_fingerprint: str
    vocab_size: int
    hidden_size: int
    layers: tuple[int, ...]
    """Layers whose inputs are wanted, in this order; the number of layers stands for what leaves the last one."""


class TargetStates:
    """One connection to a target. Made by `connect`; used from one event loop."""

    def __init__(self, wanted: WantedStates) -> None:
        self._wanted = wanted
        self._stream: MuxStream
        self._answers: dict[int, asyncio.Future[Verdict]] = {}
        self._sequence_ids = itertools.count(1)
        self._room = asyncio.Semaphore(_NUM_TEXTS)
        # Prefixes are shared among the pieces of a text, not with what users ask.
        self._cache_salt = secrets.token_hex(8)

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, wanted: WantedStates, security: LinkSecurity) -> AsyncIterator[TargetStates]:
        """Connected inside the block.

        Raises: HandshakeError for a target that is another, or keeps other layers; AuthenticationError;
        UnavailableError, DeadlineExceededError.
        """
        states = cls(wanted)
        states._stream = await MuxStream.connect(
            wanted.address,
            service="target",
            hello=Hello(peer="pilotfish train", tokenizer_fingerprint=wanted.tokenizer_fingerprint),
            on_events=states._receive,
            on_load=lambda _: None,
            on_lost=states._lose,
            security=security,
        )
        try:
            _check(states._stream.model, wanted)
            yield states
        finally:
            await states._stream.close()

    @property
    def max_tokens(self) -> int:
        """The longest text. One token is decoded behind it, and a sequence that is full tells no features."""
        return self._stream.model.max_context_tokens - 2

    async def read(self, token_ids: Sequence[int]) -> Tensor:
        """[T, F, H] bfloat16 of a text of at most max_tokens; a few are read at once, others wait.

        Raises: UnavailableError, ResourceExhaustedError and DeadlineExceededError, which trying again may mend;
        other PilotfishError kinds.
        """
        async with self._room:
            kept, size = self._stream.model.feature_layers, self._wanted.hidden_size
            parts = []
            for first, end in _pieces(len(token_ids), token_bytes=len(kept) * size * torch.bfloat16.itemsize):
                parts.append(self._decode(await self._ask(tuple(token_ids[:end]), first), first, end))
            places = [kept.index(layer) for layer in self._wanted.layers]
            return torch.cat(parts).view(len(token_ids), len(kept), size)[:, places]

    async def _ask(self, prompt: tuple[int, ...], first: int) -> Verdict:
        """The verdict with the features of the prompt from position `first` on."""
        sequence_id, end = next(self._sequence_ids), len(prompt)
        answer: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self._answers[sequence_id] = answer
        # Of two tokens only one is decoded: what has ended brings no features.
        sampling = SamplingParams(temperature=0, max_tokens=2)
        try:
            self._stream.send(OpenSequence(sequence_id, prompt, sampling, cache_salt=self._cache_salt))
            self._stream.send(Decode(sequence_id, end, 1, features=FeatureRequest(first)))
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                return await answer
        except TimeoutError:
            raise DeadlineExceededError(f"{self._name} has not answered for {_ANSWER_TIMEOUT_S:g} s") from None
        finally:
            del self._answers[sequence_id]
            with contextlib.suppress(PilotfishError):  # it is lost, and so is what it held
                self._stream.send(CloseSequence(sequence_id))

    def _decode(self, verdict: Verdict, first: int, end: int) -> Tensor:
        features = verdict.features or Features(0, 0, b"")
        if (features.first_position, features.end_position) != (first, end):
            raise UnavailableError(f"{self._name} sent no features of positions {first} to {end}")
        kept = self._stream.model.feature_layers
        try:
            return decode_features(features, width=len(kept) * self._wanted.hidden_size, num_layers=len(kept))
        except ValueError as error:
            raise HandshakeError(
                f"{self._name} sent hidden states that --target does not have ({error}): is it the same model?"
            ) from None

    @property
    def _name(self) -> str:
        return f"the target at {self._wanted.address}"

    def _receive(self, events: Sequence[Event]) -> None:
        for event in events:
            answer = self._answers.get(event.sequence_id)
            if answer is None or answer.done():
                continue
            if isinstance(event, Verdict):
                answer.set_result(event)
            elif isinstance(event, SequenceError):
                answer.set_exception(event.error(self._name))

    def _lose(self, reason: PilotfishError) -> None:
        """Whatever ended a stream that worked, another may work again."""
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(UnavailableError(str(reason)))


def _check(model: ModelInfo, wanted: WantedStates) -> None:
    """Raises HandshakeError, saying what to set, for a target that cannot serve what is wanted."""
    name = f"the target at {wanted.address} ({model.model_id})"
    if model.model_id != wanted.model_id:
        logger.warning("%s is not named %s: what is trained drafts for the model that is served", name, wanted.model_id)
    if model.vocab_size != wanted.vocab_size:
        raise HandshakeError(
            f"{name} has a vocabulary of {model.vocab_size} tokens, --target one of {wanted.vocab_size}: "
            "name the model that is served there"
        )
    if not set(wanted.layers) <= set(model.feature_layers):
        kept = f"keeps layers {list(model.feature_layers)}" if model.feature_layers else "keeps no hidden states"
        layers = list(dict.fromkeys(wanted.layers))
        raise HandshakeError(f"{name} {kept}: start it with target.feature_layers: {layers}")


def _pieces(num_tokens: int, *, token_bytes: int) -> Iterator[tuple[int, int]]:
    """First position and end of each piece of a text, in whole KV blocks."""
    num_blocks = min(MAX_FEATURE_TOKENS, _PIECE_BYTES // token_bytes) // BLOCK_SIZE
    size = max(1, num_blocks) * BLOCK_SIZE
    for first in range(0, num_tokens, size):
        yield first, min(first + size, num_tokens)
