from itertools import pairwise

import pytest

from pilotfish.features import Features
from pilotfish.messages import Verdict, join_plain
from pilotfish.types import FinishReason, Timings, TokenLogprobs, TokenOrigin

PLAIN, ACCEPTED = TokenOrigin.PLAIN, TokenOrigin.ACCEPTED
RECOVERED, BONUS, GRAMMAR = TokenOrigin.RECOVERED, TokenOrigin.BONUS, TokenOrigin.GRAMMAR


@pytest.mark.parametrize(
    ("verdict", "origins"),
    [
        (Verdict(1, 5, 0, 0, (7,)), (PLAIN,)),
        (Verdict(1, 5, 0, 0, (7, 8, 9)), (PLAIN, PLAIN, PLAIN)),
        (Verdict(1, 5, 3, 1, (7, 8)), (ACCEPTED, RECOVERED)),
        (Verdict(1, 5, 2, 2, (7, 8, 9)), (ACCEPTED, ACCEPTED, BONUS)),
        (Verdict(1, 5, 2, 0, (7,)), (RECOVERED,)),
        (Verdict(1, 5, 3, 2, (7, 8)), (ACCEPTED, ACCEPTED)),
        (Verdict(1, 5, 3, 2, (7, 8, 9), first_grammar_token=1, num_grammar_tokens=2), (ACCEPTED, GRAMMAR, RECOVERED)),
        (Verdict(1, 5, 3, 3, (6, 7, 8, 9), num_grammar_tokens=2), (GRAMMAR, GRAMMAR, ACCEPTED, BONUS)),
        (Verdict(1, 5, 3, 0, (7,), num_grammar_tokens=3), (RECOVERED,)),
        (Verdict(1, 5, 6, 2, (7, 8, 9), draft_depth=2, ended_in_leaf=True), (ACCEPTED, ACCEPTED, BONUS)),
    ],
)
def test_origins(verdict: Verdict, origins: tuple[TokenOrigin, ...]) -> None:
    assert verdict.origins == origins


def test_joined_plain_steps_tell_all_that_the_steps_told() -> None:
    features = Features(0, 1, b"12")
    steps = [
        Verdict(1, 5, 0, 0, (7,), logprobs=(TokenLogprobs(-1.0),), timings=Timings(9, 2)),
        Verdict(1, 6, 0, 0, (8, 9), logprobs=(TokenLogprobs(-2.0), TokenLogprobs(-3.0)), timings=Timings(0, 4)),
        Verdict(1, 8, 0, 0, (3,), logprobs=(TokenLogprobs(-4.0),), finish_reason=FinishReason.STOP, features=features),
    ]
    assert all(after.continues_plainly(before) for before, after in pairwise(steps))
    assert join_plain(steps) == Verdict(
        1,
        5,
        0,
        0,
        (7, 8, 9, 3),
        logprobs=tuple(TokenLogprobs(-float(number)) for number in (1, 2, 3, 4)),
        finish_reason=FinishReason.STOP,
        timings=Timings(9, 6),
        features=features,
    )
