"""Replicas in memory, a toy tokenizer and sequences over it: the orchestrator's objects without a network."""

from collections.abc import Callable, Sequence

import pytest

from orchestrator.answers import sequence as answers
from orchestrator.answers.output import AnswerText
from orchestrator.requests.request import GenerationRequest, SpeculationOptions
from pilotfish.messages import Event, Opened, SequenceError
from pilotfish.types import SamplingParams, SequenceErrorCode
from tests.support.memory_pool import MemoryPool
from tests.support.memory_replicas import MemoryLink
from tests.support.toy_model import continuation


class ToyTokenizer:
    """Token n is the letter that n names, so that tokens and text are easy to match."""

    class _Letters(dict[int, bytes]):
        is_byte_level = True

        def __missing__(self, token_id: int) -> bytes:
            return chr(ord("A") + token_id).encode()

    token_bytes = _Letters()

    def bytes_by_token(self, *, skip_special: bool) -> _Letters:
        return self.token_bytes

    def special_token_id(self, text: str) -> None:
        """No token is special."""


@pytest.fixture
def memory_link() -> type[MemoryLink]:
    return MemoryLink


@pytest.fixture
def memory_pool() -> type[MemoryPool]:
    return MemoryPool


@pytest.fixture
def toy_continuation() -> Callable[[Sequence[int], int], tuple[int, ...]]:
    return continuation


@pytest.fixture
def toy_tokenizer() -> ToyTokenizer:
    return ToyTokenizer()


@pytest.fixture
def sequence_of(toy_tokenizer: ToyTokenizer) -> Callable[..., answers.Sequence]:
    """Makes one that has a prompt, greedy unless told otherwise."""

    def make(
        prompt: Sequence[int] = (1, 2, 3),
        sampling: SamplingParams = SamplingParams(temperature=0),
        *,
        num_speculative_tokens: int = 4,
        stop: tuple[str, ...] = (),
    ) -> answers.Sequence:
        request = GenerationRequest(
            prompt_token_ids=tuple(prompt),
            sampling=sampling,
            speculation=SpeculationOptions(),
            num_speculative_tokens=num_speculative_tokens,
            stop=stop,
        )
        return answers.Sequence(request, AnswerText(toy_tokenizer, request))

    return make


@pytest.fixture
def sequence_error() -> Callable[[SequenceErrorCode], Callable[[Event], Sequence[Event]]]:
    """A fault: every event but Opened becomes an error with this code."""

    def fault(code: SequenceErrorCode) -> Callable[[Event], Sequence[Event]]:
        def replace(event: Event) -> Sequence[Event]:
            if isinstance(event, Opened):
                return (event,)
            base_length = 0 if isinstance(event, SequenceError) else event.base_length
            return (SequenceError(event.sequence_id, code, "a fault", base_length),)

        return replace

    return fault
