"""What of a drafter's tokens the target would accept: by their place in the draft, and tokens a round. Pure.

A target whose text does not depend on drafts (greedy and coupled sampling) accepts those that are its own next tokens.
So an answer with a draft after each token says exactly what rounds of any length would have done with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pilotfish.examine.drafted_answer import DraftedAnswer


class Acceptance(msgspec.Struct, frozen=True):
    """How a drafter's tokens fare in some answers."""

    num_answers: int
    num_positions: int
    """Places at which something could have been drafted."""
    rates: tuple[float, ...]
    """Element i: share of tokens i of a draft that are accepted, where those before were; none for a place that was not
    reached."""
    tokens_per_round: tuple[float, ...]
    """Element k: tokens of a round of at most k drafts, the target's own among them. Element 0 is 1."""
    drafts_per_round: tuple[float, ...]
    """Element k: drafts that such a round verifies: fewer than k where the drafter has no idea."""
    confidence: float | None = None
    """What the drafter expects for its first tokens, on average; None: it does not say. Compare with rates[0]."""


def acceptance_of(answers: Sequence[DraftedAnswer], max_draft_tokens: int) -> Acceptance:
    """Acceptance over all places of the answers; rounds are those that would have followed each other."""
    places = [(answer, place) for answer in answers for place in range(1, len(answer.token_ids))]
    lengths = [(answer.num_accepted(place), len(answer.token_ids) - place) for answer, place in places]
    rounds = [replay(answers, length) for length in range(max_draft_tokens + 1)]
    sure = [draft.confidences[0] for answer, place in places if (draft := answer.draft_after(place)).confidences]
    return Acceptance(
        num_answers=len(answers),
        num_positions=len(places),
        rates=tuple(_rates(lengths, max_draft_tokens)),
        tokens_per_round=tuple(num_tokens for num_tokens, _ in rounds),
        drafts_per_round=tuple(num_drafts for _, num_drafts in rounds),
        confidence=sum(sure) / len(sure) if sure else None,
    )


def _rates(lengths: Sequence[tuple[int, int]], max_draft_tokens: int) -> Iterator[float]:
    """lengths: of each place the accepted tokens, and those that the answer has after it."""
    for length in range(max_draft_tokens):
        judged = [num_accepted for num_accepted, num_left in lengths if length <= num_accepted and length < num_left]
        if not judged:
            return
        yield sum(num_accepted > length for num_accepted in judged) / len(judged)


def replay(answers: Sequence[DraftedAnswer], num_draft_tokens: int) -> tuple[float, float]:
    """Tokens of a round and the drafts that it verifies, on average: each begins where the one before has ended.

    1.0 and 0.0 where no round is complete.
    """
    num_tokens = num_drafts = num_rounds = 0
    for answer in answers:
        place = 1
        while place < len(answer.token_ids) and answer.is_known(place, num_draft_tokens):
            drafted = min(len(answer.draft_after(place).token_ids), num_draft_tokens)
            gained = min(answer.num_accepted(place), drafted) + 1
            gained = min(gained, len(answer.token_ids) - place)
            num_tokens += gained
            num_drafts += drafted
            num_rounds += 1
            place += gained
    return (num_tokens / num_rounds, num_drafts / num_rounds) if num_rounds else (1.0, 0.0)
