"""What answers that may differ from plain decoding's are worth, by the target's own probabilities."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """Quality of the tokens of some answers, each given those before it."""

    mean_logprob: float
    """Under the target's unmodified distribution."""
    other_tokens: float
    """Share that is not the target's first choice: 0 for plain greedy decoding."""


def quality_of(answers: Iterable[tuple[Sequence[int], Sequence[Any]]]) -> Quality | None:
    """Quality by token ids and their log-probabilities (TokenLogprobs or the message of that name, with the likeliest
    token); None: there are none."""
    tokens = [pair for token_ids, logprobs in answers for pair in zip(token_ids, logprobs, strict=False)]
    if not tokens:
        return None
    return Quality(
        mean_logprob=statistics.fmean(each.logprob for _, each in tokens),
        other_tokens=statistics.fmean(token_id != each.top_token_ids[0] for token_id, each in tokens),
    )
