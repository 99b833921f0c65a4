from __future__ import annotations

from types import SimpleNamespace

from orchestrator.http.completions.usage import PromptTokensDetails, Usage, usage_of


def test_a_prompt_counts_once_however_many_answers_it_has() -> None:
    def report(num_prompt_tokens, num_output_tokens, num_cached_tokens):
        return SimpleNamespace(
            num_prompt_tokens=num_prompt_tokens,
            num_output_tokens=num_output_tokens,
            num_cached_tokens=num_cached_tokens,
        )

    reports = [(0, report(5, 2, 1)), (0, report(5, 3, 4)), (1, report(7, 4, 0))]
    assert usage_of(reports) == Usage(12, 9, 21, PromptTokensDetails(1))
