"""What a grammar forbids is impossible, in every rule, and rows without a grammar are not touched."""

from collections.abc import Sequence

import pytest
import torch

from pilotfish.speculation.draft_tokens import draft
from pilotfish.speculation.rounds import Round, verify
from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.constraints import without_forbidden
from pilotfish.speculation.sampling.penalties import Row, adjust
from pilotfish.types import AcceptanceMode, Grammar, GrammarKind, SamplingParams, SparseDistribution

VOCAB = 300
ANY = Grammar(GrammarKind.JSON_OBJECT)


class EvenAfterOdd:
    """Tokens after an odd path length are even, after an even one odd; 7 is never allowed."""

    def allowed(self, draft_token_ids: Sequence[int]) -> bytes | None:
        parity = 1 - len(draft_token_ids) % 2
        return mask(token_id for token_id in range(VOCAB) if token_id % 2 == parity and token_id != 7)


def mask(token_ids: Sequence[int]) -> bytes:
    bits = bytearray(-(-VOCAB // 32) * 4)
    for token_id in token_ids:
        bits[token_id // 8] |= 1 << token_id % 8
    return bytes(bits)


def logits(num_rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * 3


def test_forbidden_tokens_become_impossible_in_their_rows_only() -> None:
    values = logits(3)
    before = values.clone()
    for masks in ([mask([3, 299]), None, mask([0])], [mask([3, 299]), mask(range(VOCAB)), mask([0])]):
        constrained = without_forbidden(values, masks)
        assert constrained[1].equal(before[1])
        assert (constrained[0] > -torch.inf).nonzero().flatten().tolist() == [3, 299]
        assert (constrained[2] > -torch.inf).nonzero().flatten().tolist() == [0]
    assert values.equal(before)
    assert without_forbidden(values, [None] * 3) is values


def test_a_row_that_nothing_is_left_of_stays_free() -> None:
    values = logits(1)
    values[0, 10:] = -torch.inf  # a head that knows ten tokens

    class Unknown:
        def allowed(self, draft_token_ids: Sequence[int]) -> bytes | None:
            return mask([200])

    row = Row(SamplingParams(temperature=0, grammar=ANY), 0, None, constraint=Unknown())
    adjusted = adjust(BlockedLogits.of(values), [row])
    assert adjusted.logits.equal(values)


RULES = [
    SamplingParams(temperature=0, grammar=ANY),
    SamplingParams(seed=5, grammar=ANY),
    SamplingParams(seed=5, top_p=0.9, logit_bias=((7, 100.0),), grammar=ANY),
    SamplingParams(seed=5, acceptance=AcceptanceMode.REJECTION, grammar=ANY),
]


@pytest.mark.parametrize("sampling", RULES)
def test_verification_keeps_to_the_grammar_along_every_path(sampling: SamplingParams) -> None:
    one_hot = tuple(SparseDistribution((token_id,), (1.0,)) for token_id in (7, 8, 9))
    for seed in range(20):
        drafts = (7, 8, 9) if seed % 2 else (9, 8, 7)
        probs = one_hot if seed % 2 else one_hot[::-1]
        round_ = Round(sampling, 10, drafts, probs, None, constraint=EvenAfterOdd())
        (outcome,) = verify(logits(4, seed), [round_])
        assert all(token_id % 2 == 1 - index % 2 for index, token_id in enumerate(outcome.token_ids))
        assert 7 not in outcome.token_ids


@pytest.mark.parametrize("sampling", RULES)
def test_the_drafter_masks_its_own_distribution(sampling: SamplingParams) -> None:
    drafted = draft(logits(2), [Row(sampling, 4, None, constraint=EvenAfterOdd())] * 2, top_m=8)
    assert all(one.token_id % 2 == 1 and one.token_id != 7 for one in drafted)
    for one in drafted:
        assert one.probs is None or all(token_id % 2 == 1 for token_id in one.probs.token_ids)


def test_rejection_follows_the_masked_target_exactly() -> None:
    """Drafts from an unmasked distribution: the output still has the masked target's."""
    num_rounds = 4000
    values = torch.log(torch.tensor([[0.4, 0.3, 0.2, 0.1]])).repeat(2 * num_rounds, 1)
    draft_probs = SparseDistribution((0, 1, 2, 3), (0.7, 0.1, 0.1, 0.1))

    class NotTheFirst:
        def allowed(self, draft_token_ids: Sequence[int]) -> bytes | None:
            return bytes([0b1110])

    generator = torch.Generator().manual_seed(0)
    drafts = torch.multinomial(torch.tensor(draft_probs.probs), num_rounds, replacement=True, generator=generator)
    sampling = [SamplingParams(seed=s, acceptance=AcceptanceMode.REJECTION, grammar=ANY) for s in range(num_rounds)]
    rounds = [
        Round(params, 0, (token_id,), (draft_probs,), None, constraint=NotTheFirst())
        for params, token_id in zip(sampling, drafts.tolist(), strict=True)
    ]
    counts = torch.zeros(4)
    for outcome in verify(values, rounds):
        counts[outcome.token_ids[0]] += 1
    expected = torch.tensor([0, 0.5, 1 / 3, 1 / 6]) * num_rounds
    assert counts[0] == 0
    assert float(((counts - expected)[1:] ** 2 / expected[1:]).sum()) < 13.8  # chi-square, 2 degrees, p = 0.001
