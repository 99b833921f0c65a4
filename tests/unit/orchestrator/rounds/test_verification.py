"""A round that verifies a draft."""

import pytest

from orchestrator.rounds.draft import Draft
from orchestrator.rounds.timing import Mark, RoundTiming
from orchestrator.rounds.verification import Verification
from pilotfish.messages import Verdict
from pilotfish.types import LoadReport


@pytest.mark.parametrize(("num_draft_tokens", "num_plain_tokens"), [(0, 1), (2, 0)])
def test_it_ends_with_its_verdict_and_counts_what_came_without_the_draft(num_draft_tokens, num_plain_tokens) -> None:
    verification = Verification(Draft((1, 2)), 3)
    verification.timing = RoundTiming(Mark(0.0, 3, LoadReport()))
    assert not verification.is_over(3)
    assert verification.num_coming_tokens(3) == 1
    length = 4 + num_draft_tokens
    verdict = Verdict(1, 3, num_draft_tokens, num_draft_tokens, (9,) * (length - 3))
    verification.take(verdict, Mark(1.0, length, LoadReport()))
    assert verification.is_over(length)
    assert verification.num_coming_tokens(length) == 0
    assert verification.num_plain_tokens == num_plain_tokens


def test_what_a_grammar_drafted_is_counted_apart() -> None:
    verification = Verification(Draft((1, 2)), 3)
    verification.timing = RoundTiming(Mark(0.0, 3, LoadReport()))
    verdict = Verdict(1, 3, 3, 3, (9,) * 4, first_grammar_token=2, num_grammar_tokens=1)
    verification.take(verdict, Mark(1.0, 6, LoadReport()))
    assert (verification.num_forced_tokens, verification.num_plain_tokens) == (1, 0)
