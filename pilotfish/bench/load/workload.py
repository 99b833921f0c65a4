"""What is asked: the same requests for every mode."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from pilotfish.bench.load.lengths import Lengths
from pilotfish.client.answer import Prompt, TokenPrompt
from pilotfish.types import ChatMessage

NUM_NONCE_TOKENS = 4
"""Random tokens at the start of a synthetic prompt: no two share a block of the prefix cache."""


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request of a run."""

    index: int
    prompt: Prompt
    max_tokens: int
    seed: int
    """Of sampling; below 2^63."""


class Prompts(Protocol):
    """Where prompts come from."""

    def prompt(self, random: Random, index: int) -> Prompt:
        """The prompt of a request."""


@dataclass(frozen=True)
class ListedPrompts:
    """Given texts in their order, over and over, each as a user's turn."""

    texts: Sequence[str]

    def prompt(self, random: Random, index: int) -> Prompt:
        """The next one."""
        del random
        return (ChatMessage("user", self.texts[index % len(self.texts)]),)


@dataclass(frozen=True)
class SyntheticPrompts:
    """Running text of given lengths, cut out of a corpus behind a few random tokens."""

    corpus_token_ids: tuple[int, ...]
    lengths: Lengths

    def prompt(self, random: Random, index: int) -> Prompt:
        """A prompt that no other one begins like."""
        del index
        corpus = self.corpus_token_ids
        num_tokens = self.lengths.draw(random)
        nonce = random.choices(corpus, k=min(NUM_NONCE_TOKENS, num_tokens))
        start = random.randrange(len(corpus))
        text = itertools.islice(itertools.cycle((*corpus[start:], *corpus[:start])), num_tokens - len(nonce))
        return TokenPrompt((*nonce, *text))


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The requests of all runs. The same seed gives the same ones."""

    prompts: Prompts
    output_lengths: Lengths
    seed: int
    max_context_tokens: int
    """Longer ones are cut: the answer first, then the prompt."""

    def requests(self, salt: str = "") -> Iterator[PlannedRequest]:
        """Without end. salt: another one gives other prompts."""
        for index in itertools.count():
            # A source of its own for each request, so that it does not depend on how far others drew.
            num_output = self.output_lengths.draw(Random(f"{self.seed}/{index}"))
            num_output = min(num_output, self.max_context_tokens - 1)
            prompt = self.prompts.prompt(Random(f"{self.seed}/{index}/{salt}"), index)
            if isinstance(prompt, TokenPrompt):
                prompt = TokenPrompt(prompt.token_ids[: self.max_context_tokens - num_output])
            yield PlannedRequest(index, prompt, num_output, seed=self.seed + index)
