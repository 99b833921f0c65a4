import pytest
import torch

from pilotfish.speculation.draft_tokens import draft
from pilotfish.speculation.rounds import Round, verify
from pilotfish.speculation.sampling.history import TokenHistory
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.types import AcceptanceMode, SamplingParams

VOCAB_SIZE = 500


def make_logits(num_rows: int) -> torch.Tensor:
    return (torch.randn(num_rows, VOCAB_SIZE, generator=torch.Generator().manual_seed(2)) * 3).bfloat16()


@pytest.mark.parametrize("fields", [{"temperature": 0.0}, {}, {"top_p": 0.8}, {"presence_penalty": 1.0}], ids=str)
def test_a_drafter_with_the_targets_logits_foresees_its_choice(fields):
    logits = make_logits(30)
    samplings = [SamplingParams(seed=seed, **fields) for seed in range(30)]
    history = TokenHistory([1], [2, 3])
    drafts = draft(logits, [Row(sampling, 3, history) for sampling in samplings], 4)
    outcomes = verify(logits, [Round(sampling, 3, (), (), history) for sampling in samplings])
    assert [drafted.token_id for drafted in drafts] == [outcome.token_ids[0] for outcome in outcomes]
    assert all(drafted.probs is None for drafted in drafts)


@pytest.mark.parametrize("fields", [{}, {"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.05, "temperature": 0.6}], ids=str)
def test_rejection_sends_the_pairs_it_sampled_from(fields):
    logits = make_logits(30)
    rows = [Row(SamplingParams(seed=s, acceptance=AcceptanceMode.REJECTION, **fields), 3, None) for s in range(30)]
    for index, drafted in enumerate(draft(logits, rows, 8)):
        probs = drafted.probs
        assert drafted.token_id in probs.token_ids
        assert len(probs.token_ids) == len(probs.probs) <= (5 if "top_k" in fields else 8)
        assert sum(probs.probs) == pytest.approx(1, abs=1e-6)
        assert min(probs.probs) > 0
        # float32 on both sides of the wire.
        assert torch.tensor(probs.probs, dtype=torch.float32).double().tolist() == list(probs.probs)
        best = logits[index].float().topk(1).indices.item()
        assert best in probs.token_ids


def test_one_step_may_mix_modes_and_keeps_the_order_of_rows():
    logits = make_logits(6)
    samplings = [
        SamplingParams(temperature=0),
        SamplingParams(seed=1),
        SamplingParams(seed=2, acceptance=AcceptanceMode.REJECTION),
        SamplingParams(temperature=0, logit_bias=((7, 50.0),)),
        SamplingParams(seed=4, top_k=3),
        SamplingParams(temperature=0, acceptance=AcceptanceMode.REJECTION),
    ]
    rows = [Row(sampling, 9, None) for sampling in samplings]
    together = draft(logits, rows, 4)
    assert together == [draft(logits[i : i + 1], rows[i : i + 1], 4)[0] for i in range(6)]
    assert together[3].token_id == 7
    assert [drafted.probs is not None for drafted in together] == [False, False, True, False, False, False]
