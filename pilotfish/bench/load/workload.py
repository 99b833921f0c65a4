"""What is asked, and when: the same requests for every mode."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from pilotfish.bench.load.lengths import Lengths
from pilotfish.bench.load.level import Level, arrival_times_s, trace_times_s
from pilotfish.bench.load.trace import TraceEntry
from pilotfish.client.answer import Prompt, TokenPrompt
from pilotfish.errors import ConfigError
from pilotfish.types import ChatMessage

NUM_NONCE_TOKENS = 4
"""Random tokens at the start of a synthetic prompt: no two share a block of the prefix cache."""


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request of a run."""

    index: int
    arrival_s: float | None
    """Since the start of the run; None: when a client of the closed loop is free."""
    prompt: Prompt
    max_tokens: int
    seed: int
    """Of sampling; below 2^63."""


class Prompts(Protocol):
    """Where prompts come from."""

    def prompt(self, random: Random, index: int, num_tokens: int | None) -> Prompt:
        """The prompt of a request; num_tokens: as a trace demands it, None: as the source has it."""


@dataclass(frozen=True)
class ListedPrompts:
    """Given texts in their order, over and over, each as a user's turn."""

    texts: Sequence[str]

    def prompt(self, random: Random, index: int, num_tokens: int | None) -> Prompt:
        """Raises ConfigError for a demanded length."""
        del random
        if num_tokens is not None:
            raise ConfigError("a trace says how long prompts are: leave --prompts out")
        return (ChatMessage("user", self.texts[index % len(self.texts)]),)


@dataclass(frozen=True)
class SyntheticPrompts:
    """Running text of given lengths, cut out of a corpus behind a few random tokens."""

    corpus_token_ids: tuple[int, ...]
    lengths: Lengths

    def prompt(self, random: Random, index: int, num_tokens: int | None) -> Prompt:
        """A prompt that no other one begins like."""
        del index
        corpus = self.corpus_token_ids
        num_tokens = num_tokens or self.lengths.draw(random)
        nonce = random.choices(corpus, k=min(NUM_NONCE_TOKENS, num_tokens))
        start = random.randrange(len(corpus))
        rest = corpus[start : start + num_tokens]
        num_whole = max(num_tokens - len(rest), 0) // len(corpus) + 1
        return TokenPrompt((*nonce, *rest, *corpus * num_whole)[:num_tokens])


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The requests of all runs. The same seed gives the same ones."""

    prompts: Prompts
    output_lengths: Lengths
    seed: int
    max_context_tokens: int
    """Longer ones are cut: the answer first, then the prompt."""
    trace: Sequence[TraceEntry] = ()
    """Needed by levels of kind `trace`."""

    def requests(self, level: Level, salt: str = "") -> Iterator[PlannedRequest]:
        """Without end, but for a trace; in the order of arrival. salt: another one gives other prompts."""
        arrivals: Iterator[tuple[float | None, TraceEntry | None]]
        if level.kind == "trace":
            arrivals = zip(trace_times_s(self.trace, level.value), self.trace, strict=True)
        elif level.kind == "rate":
            times = arrival_times_s(level.value, level.burstiness, Random(f"{self.seed}/arrivals"))
            arrivals = ((time_s, None) for time_s in times)
        else:
            arrivals = itertools.repeat((None, None))
        for index, (arrival_s, entry) in enumerate(arrivals):
            yield self._request(index, arrival_s, entry, salt)

    def _request(self, index: int, arrival_s: float | None, entry: TraceEntry | None, salt: str) -> PlannedRequest:
        # Of its own for each request, so that it does not depend on how far others drew.
        random = Random(f"{self.seed}/{index}/{salt}")
        num_output = entry.output_length if entry else self.output_lengths.draw(Random(f"{self.seed}/{index}"))
        num_output = min(num_output, self.max_context_tokens - 1)
        prompt = self.prompts.prompt(random, index, entry.input_length if entry else None)
        if isinstance(prompt, TokenPrompt):
            prompt = TokenPrompt(prompt.token_ids[: self.max_context_tokens - num_output])
        return PlannedRequest(index, arrival_s, prompt, num_output, seed=self.seed + index)
