from __future__ import annotations

import pytest

from orchestrator.http.completions.completion_request import CompletionRequest, prompts_of
from orchestrator.requests.prompt import TextPrompt, TokenPrompt


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("sea", [TextPrompt("sea")]),
        (["sea", "sky"], [TextPrompt("sea"), TextPrompt("sky")]),
        ([1, 2], [TokenPrompt([1, 2])]),
        ([[1, 2], [3]], [TokenPrompt([1, 2]), TokenPrompt([3])]),
    ],
)
def test_prompts(prompt, expected) -> None:
    assert prompts_of(prompt) == expected


def test_what_changes_nothing_is_served() -> None:
    CompletionRequest(prompt="sea", n=2, best_of=2, suffix="", logprobs=5).check_supported()


def test_a_completion_is_short_unless_told() -> None:
    assert CompletionRequest(prompt="sea").max_output_tokens() == 16
    assert CompletionRequest(prompt="sea", max_tokens=3).max_output_tokens() == 3
