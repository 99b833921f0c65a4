"""What the target thinks of answers."""

import pytest

from pilotfish.bench.quality import quality_of
from pilotfish.types import TokenLogprobs


def told(logprob: float, likeliest: int) -> TokenLogprobs:
    return TokenLogprobs(logprob, (likeliest,), (0.0,))


def test_every_token_counts_alike() -> None:
    answers = [((5, 6, 7), (told(-1, 5), told(-2, 9), told(-3, 7))), ((8,), (told(-6, 1),))]
    quality = quality_of(answers)
    assert quality is not None
    assert quality.mean_logprob == pytest.approx(-3)
    assert quality.other_tokens == pytest.approx(1 / 2)


def test_a_target_that_tells_nothing_has_no_opinion() -> None:
    assert quality_of([((5, 6), ())]) is None
