"""What is asked: the same requests for every mode."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from pilotfish.chat import ChatMessage
from pilotfish.client.answer import Prompt, TokenPrompt
from pilotfish.errors import ConfigError

FORMS = "N, fixed:N, uniform:LOW-HIGH, lognormal:MEDIAN,SIGMA or lognormal:MEDIAN,SIGMA,LARGEST"


@dataclass(frozen=True)
class Lengths:
    """A distribution of lengths."""

    name: str
    smallest: int
    """No draw is below it; at least 1."""
    draw: Callable[[Random], int] = field(compare=False)
    """One length, in tokens."""

    def __str__(self) -> str:
        return self.name


def parse_lengths(text: str) -> Lengths:
    """One of FORMS: always the same, every length between two (both included) equally often, or with a normal
    logarithm, so that most are short and a few very long, as in chat traffic. Raises ConfigError."""
    kind, separator, rest = text.strip().partition(":")
    if not separator:
        kind, rest = "fixed", kind
    try:
        lengths = _parse(kind, rest)
    except ValueError:
        lengths = None
    if lengths is None or lengths.smallest < 1:
        raise ConfigError(f"{text!r} is no length distribution; write {FORMS}")
    return lengths


def _parse(kind: str, rest: str) -> Lengths | None:
    """The lengths; None for what has the form but makes no sense. Raises ValueError for what has not even the form."""
    if kind == "fixed":
        num_tokens = int(rest)
        return Lengths(rest.strip(), num_tokens, lambda _: num_tokens)
    if kind == "uniform":
        low, high = (int(value) for value in rest.split("-"))
        return Lengths(f"uniform {low}-{high}", low, lambda random: random.randint(low, high)) if low <= high else None
    if kind == "lognormal":
        median, sigma, *cut = (float(value) for value in rest.split(","))
        largest = int(cut[0]) if cut else None
        if len(cut) > 1 or not (1 <= median < math.inf and 0 <= sigma <= 5) or (largest is not None and largest < 1):
            return None

        def draw(random: Random) -> int:
            length = max(1, round(random.lognormvariate(math.log(median), sigma)))
            return min(length, largest) if largest is not None else length

        at_most = f", at most {largest}" if largest is not None else ""
        return Lengths(f"lognormal, median {median:g}, sigma {sigma:g}{at_most}", 1, draw)
    return None


NUM_NONCE_TOKENS = 4
"""Random tokens at the start of a synthetic prompt: no two share a block of the prefix cache."""


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request of a run."""

    index: int
    prompt: Prompt
    max_tokens: int
    seed: int
    """Seed of sampling; below 2^63."""


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
        """Requests without end. salt: another one gives other prompts."""
        for index in itertools.count():
            # A source of its own for each request, so that it does not depend on how far others drew.
            num_output = self.output_lengths.draw(Random(f"{self.seed}/{index}"))
            num_output = min(num_output, self.max_context_tokens - 1)
            prompt = self.prompts.prompt(Random(f"{self.seed}/{index}/{salt}"), index)
            if isinstance(prompt, TokenPrompt):
                prompt = TokenPrompt(prompt.token_ids[: self.max_context_tokens - num_output])
            yield PlannedRequest(index, prompt, num_output, seed=self.seed + index)
