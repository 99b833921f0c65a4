"""A draft vocabulary's tokens are ranked among themselves, and come out as the target's."""

import pytest
import torch

from pilotfish.speculation.draft_tokens import draft
from pilotfish.speculation.draft_vocabulary import DraftVocabulary
from pilotfish.speculation.sampling.history import TokenHistory
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.trees.branching import branch
from pilotfish.types import AcceptanceMode, SamplingParams

NUM_ROWS, VOCAB = 200, 3000
IDS = torch.arange(7, VOCAB, 5)
LOGITS = 4 * torch.randn(NUM_ROWS, len(IDS), generator=torch.Generator().manual_seed(1))
WHOLE = torch.full((NUM_ROWS, VOCAB), -torch.inf).index_copy_(1, IDS, LOGITS)

GREEDY = SamplingParams(temperature=0.0)
COUPLED = SamplingParams(temperature=0.8, seed=5)
CUT = SamplingParams(temperature=0.8, top_k=9, top_p=0.9, seed=5)
REJECTION = SamplingParams(temperature=0.8, seed=5, acceptance=AcceptanceMode.REJECTION)
CUT_REJECTION = SamplingParams(temperature=0.8, top_k=5, seed=5, acceptance=AcceptanceMode.REJECTION)


def rows_of(sampling: SamplingParams) -> list[Row]:
    return [Row(sampling, 10 + at, None) for at in range(NUM_ROWS)]


@pytest.mark.parametrize("sampling", [GREEDY, CUT, REJECTION])
def test_a_draft_is_that_of_the_whole_vocabulary_in_which_nothing_else_is_possible(sampling: SamplingParams) -> None:
    rows = rows_of(sampling)
    logits, ids = DraftVocabulary(IDS, VOCAB).ranked(LOGITS, [sampling])
    assert draft(logits, rows, 8, ids) == draft(WHOLE, rows, 8)
    nodes = [Row(sampling, row.position, None) for row in rows]
    narrow, wide = branch(logits, nodes, 4, ids), branch(WHOLE, nodes, 4)
    assert [[one.token_id for one in row] for row in narrow] == [[one.token_id for one in row] for row in wide]


def test_a_coupled_draft_is_nearly_always_the_pick() -> None:
    logits, ids = DraftVocabulary(IDS, VOCAB).ranked(LOGITS, [COUPLED])
    drafted = draft(logits, rows_of(COUPLED), 8, ids)
    assert sum(one == other for one, other in zip(drafted, draft(WHOLE, rows_of(COUPLED), 8), strict=True)) > 190
    assert {one.token_id for one in drafted} <= set(IDS.tolist())


@pytest.mark.parametrize(
    "sampling", [SamplingParams(logit_bias=((0, 5.0),)), SamplingParams(presence_penalty=1.0, temperature=0.0)]
)
def test_what_looks_at_tokens_by_their_ids_sees_the_whole_vocabulary(sampling: SamplingParams) -> None:
    vocabulary = DraftVocabulary(IDS, VOCAB)
    logits, ids = vocabulary.ranked(LOGITS[:2], [GREEDY, sampling])
    assert ids is None
    assert torch.equal(logits, WHOLE[:2])
    rows = [Row(each, 10, TokenHistory([int(IDS[LOGITS[0].argmax()])])) for each in (GREEDY, sampling)]
    assert draft(logits, rows, 8)[0].token_id == IDS[LOGITS[0].argmax()]


def test_a_vocabulary_that_is_whole_costs_nothing() -> None:
    logits = torch.randn(2, VOCAB)
    assert DraftVocabulary(torch.arange(VOCAB), VOCAB).ranked(logits, [GREEDY]) == (logits, None)


def test_the_heads_tokens_may_come_in_any_order() -> None:
    order = torch.randperm(len(IDS), generator=torch.Generator().manual_seed(2))
    logits, ids = DraftVocabulary(IDS[order], VOCAB).ranked(LOGITS[:, order], [GREEDY])
    assert draft(logits, rows_of(GREEDY), 8, ids) == draft(WHOLE, rows_of(GREEDY), 8)


@pytest.mark.parametrize("order", [slice(None), torch.randperm(len(IDS), generator=torch.Generator().manual_seed(2))])
def test_what_a_token_was_drawn_from_holds_it_however_many_are_equal(order: slice | torch.Tensor) -> None:
    """bfloat16 logits have many ties, and truncation cuts between equals."""
    tied = (LOGITS / 4).bfloat16()[:, order]
    for sampling in (CUT_REJECTION, SamplingParams(temperature=0.8, top_p=0.7, acceptance=AcceptanceMode.REJECTION)):
        logits, ids = DraftVocabulary(IDS[order], VOCAB).ranked(tied, [sampling])
        for drafted in draft(logits, rows_of(sampling), 8, ids):
            assert drafted.probs is not None
            assert drafted.token_id in drafted.probs.token_ids
            assert sum(drafted.probs.probs) == pytest.approx(1, abs=1e-5)
