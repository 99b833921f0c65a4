"""Token counts of an answer."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pilotfish.rpc.answer import Summary


class PromptTokensDetails(msgspec.Struct):
    """Details of the prompt's tokens."""

    cached_tokens: int
    """Found in the target's prefix cache."""


class CompletionTokensDetails(msgspec.Struct):
    """Details of the answers' tokens."""

    reasoning_tokens: int


class Usage(msgspec.Struct):
    """Token counts as OpenAI counts: the prompt of several answers once."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    """Details of the prompt; null while they are not known."""
    completion_tokens_details: CompletionTokensDetails | None = None
    """Details of the answers; null where thoughts are not separated, or their end mark is no token of its own."""


class RunningUsage:
    """The usage of one answer, as far as it has come."""

    def __init__(self, num_prompt_tokens: int, *, is_shown: bool) -> None:
        self._num_prompt_tokens = num_prompt_tokens
        self._is_shown = is_shown
        self.num_output_tokens = 0

    def now(self) -> Usage | None:
        """The usage now; None where events have none."""
        num_tokens = self._num_prompt_tokens + self.num_output_tokens
        return Usage(self._num_prompt_tokens, self.num_output_tokens, num_tokens) if self._is_shown else None


def with_reasoning(usage: Usage, counts: Iterable[int | None]) -> Usage:
    """counts: thought tokens of each answer; None: not known."""
    if known := [count for count in counts if count is not None]:
        usage.completion_tokens_details = CompletionTokensDetails(sum(known))
    return usage


def usage_of(reports: Iterable[tuple[int, Summary]]) -> Usage:
    """The usage of (index of the prompt, report) pairs of all answers."""
    prompts: dict[int, Summary] = {}
    num_output_tokens = 0
    for prompt_index, report in reports:
        prompts.setdefault(prompt_index, report)
        num_output_tokens += report.num_output_tokens
    num_prompt_tokens = sum(report.num_prompt_tokens for report in prompts.values())
    num_cached_tokens = sum(report.num_cached_tokens for report in prompts.values())
    return Usage(
        num_prompt_tokens,
        num_output_tokens,
        num_prompt_tokens + num_output_tokens,
        PromptTokensDetails(num_cached_tokens),
    )
