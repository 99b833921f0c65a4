import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from pilotfish.speculation.sampling.blocks import BlockedLogits
from pilotfish.speculation.sampling.truncation import find_cut
from pilotfish.types import SamplingParams


def make_logits(num_rows: int, vocab_size: int, seed: int, *, spread: float = 3.0) -> torch.Tensor:
    """Rounded to bfloat16: ties, as in production."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(num_rows, vocab_size, generator=generator) * spread).bfloat16().float()


def kept_by(logits: torch.Tensor, samplings: list[SamplingParams]) -> list[set[int]]:
    temperature = torch.tensor([[s.temperature] for s in samplings], dtype=torch.float64)
    cut = find_cut(BlockedLogits.of(logits), samplings, temperature)
    token_ids = torch.arange(logits.shape[1]).expand_as(logits)
    kept = torch.ones_like(logits, dtype=torch.bool) if cut is None else cut.keeps(logits, token_ids)
    return [set(row.nonzero().ravel().tolist()) for row in kept]


def by_definition(row: torch.Tensor, sampling: SamplingParams, slack: float = 0.0) -> set[int]:
    """slack: is added to top-p."""
    scaled = row.double() / sampling.temperature
    ranked = sorted(range(len(row)), key=lambda token_id: (-row[token_id].item(), token_id))
    if sampling.top_k:
        ranked = ranked[: sampling.top_k]
    probs = scaled[ranked].softmax(-1)
    before = probs.cumsum(-1) - probs
    kept = [
        t
        for t, mass in zip(ranked, before.tolist(), strict=True)
        if sampling.top_p == 1 or mass < sampling.top_p + slack
    ]
    # min-p is compared in logits, as in the code: equal up to rounding at the bound itself.
    bound = row.max() + sampling.temperature * torch.tensor(sampling.min_p, dtype=torch.float64).log()
    return {token_id for token_id in kept if row[token_id] >= bound.float()}


SAMPLINGS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.sampled_from([0, 0, 1, 2, 7, 40, 1000]),
    top_p=st.sampled_from([1.0, 1.0, 0.05, 0.5, 0.9, 0.99, 0.9999]),
    min_p=st.sampled_from([0.0, 0.0, 0.01, 0.2, 1.0]),
)


@example([SamplingParams(top_p=0.9999)] * 2, 118, 282412)  # ends on the bound
@example([SamplingParams(temperature=0.3, top_k=40)], 44, 0)  # the last of them weigh less than a sum rounds by
@given(st.lists(SAMPLINGS, min_size=1, max_size=4), st.integers(1, 600), st.integers(0, 2**31))
def test_keeps_what_the_definitions_keep(samplings, vocab_size, seed):
    logits = make_logits(len(samplings), vocab_size, seed)
    for kept, row, sampling in zip(kept_by(logits, samplings), logits, samplings, strict=True):
        # Without top-k a nucleus is summed up in float32: what ends within a millionth of top-p may be in it or not.
        slack = 0.0 if 0 < sampling.top_k < vocab_size else 1e-6
        assert by_definition(row, sampling, -slack) <= kept <= by_definition(row, sampling, slack)


@pytest.mark.parametrize(("top_p", "spread"), [(0.5, 0.0), (0.9, 2.0)])
def test_wide_nuclei_of_a_real_vocabulary(top_p, spread):
    logits = make_logits(2, 49_152, 5, spread=spread)
    sampling = SamplingParams(top_p=top_p)
    for kept, row in zip(kept_by(logits, [sampling, sampling]), logits, strict=True):
        expected = by_definition(row, sampling)
        # float32 masses: the boundary may move by tokens that weigh a millionth together.
        assert len(kept ^ expected) <= max(1, 1e-5 * len(expected))


def test_a_row_is_not_ranked_for_the_large_top_k_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or one request would make every step of a replica as slow as if all had asked for it."""
    num_ranked = 0
    rank = BlockedLogits.rank

    def counted(blocks: BlockedLogits, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        nonlocal num_ranked
        num_ranked += blocks.num_rows * k
        return rank(blocks, k)

    monkeypatch.setattr(BlockedLogits, "rank", counted)
    logits = make_logits(9, 49_152, 5)
    samplings = [SamplingParams(top_k=50)] * 8 + [SamplingParams(top_k=40_000)]
    assert [len(kept) for kept in kept_by(logits, samplings)] == [50] * 8 + [40_000]
    assert num_ranked <= 2 * (8 * 50 + 40_000)
