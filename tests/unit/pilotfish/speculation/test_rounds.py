import pytest
import torch

from pilotfish.speculation.draft_tokens import draft
from pilotfish.speculation.rounds import Round, verify
from pilotfish.speculation.sampling.history import TokenHistory
from pilotfish.speculation.sampling.penalties import Row
from pilotfish.speculation.trees.tree import DraftTree
from pilotfish.types import AcceptanceMode, SamplingParams, SparseDistribution

VOCAB_SIZE = 700
KINDS = (
    {"temperature": 0.0},
    {"temperature": 0.0, "repetition_penalty": 1.5, "num_logprobs": 2},
    {"temperature": 0.8},
    {"top_p": 0.9, "num_logprobs": 0},
    {"top_k": 20, "frequency_penalty": 0.5, "logit_bias": ((4, 3.0),)},
    {"acceptance": AcceptanceMode.REJECTION},
    {"acceptance": AcceptanceMode.REJECTION, "min_p": 0.02, "presence_penalty": 1.0},
    {"temperature": 0.0, "min_tokens": 4, "stop_token_ids": tuple(range(0, VOCAB_SIZE, 2))},
    {"bad_words": tuple((token_id,) for token_id in range(0, VOCAB_SIZE, 3))},
)


def make_step(dtype: torch.dtype) -> tuple[torch.Tensor, list[Round]]:
    """Rounds of every kind with 0 to 3 drafts, and their logits."""
    generator = torch.Generator().manual_seed(1)
    rounds = []
    for index in range(3 * len(KINDS)):
        sampling = SamplingParams(seed=index, **KINDS[index % len(KINDS)])
        history = TokenHistory([1, 2, 3], [4, 4]) if sampling.needs_history else None
        num_drafts = index % 4
        draft_logits = torch.randn(num_drafts, VOCAB_SIZE, generator=generator) * 4
        drafts = draft(draft_logits, [Row(sampling, 5 + at, history) for at in range(num_drafts)], 8)
        probs = [drafted.probs for drafted in drafts if drafted.probs is not None]
        rounds.append(Round(sampling, 5, [drafted.token_id for drafted in drafts], probs, history))
    num_rows = sum(len(round_.draft_token_ids) + 1 for round_ in rounds)
    logits = torch.randn(num_rows, VOCAB_SIZE, generator=generator) * 4
    # Half of the drafts are likely ones, so that some are accepted.
    row = 0
    for round_ in rounds:
        for offset, token_id in enumerate(round_.draft_token_ids):
            logits[row + offset, token_id] += 12.0 * (offset % 2 == 0)
        row += len(round_.draft_token_ids) + 1
    return logits.to(dtype), rounds


def split(logits: torch.Tensor, rounds: list[Round]) -> list[torch.Tensor]:
    return list(logits.split([len(round_.draft_token_ids) + 1 for round_ in rounds]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("drafts", ["chains", "trees"])
def test_a_round_does_not_depend_on_the_others_or_their_order(drafts, dtype):
    logits, rounds = make_step(dtype) if drafts == "chains" else make_trees(dtype)
    before = logits.clone()
    together = verify(logits, rounds)
    assert torch.equal(logits, before)
    pieces = split(logits, rounds)
    assert [verify(piece, [round_])[0] for piece, round_ in zip(pieces, rounds, strict=True)] == together
    backwards = verify(torch.cat(pieces[::-1]), rounds[::-1])
    assert backwards[::-1] == together


def test_exact_match_modes_emit_what_plain_decoding_emits():
    """Row by row with K = 0, on the same logits and with the accepted drafts committed."""
    logits, rounds = make_step(torch.bfloat16)
    for piece, round_ in zip(split(logits, rounds), rounds, strict=True):
        if round_.sampling.acceptance is AcceptanceMode.REJECTION and not round_.sampling.is_greedy:
            continue
        (outcome,) = verify(piece, [round_])
        for offset, token_id in enumerate(outcome.token_ids):
            history = TokenHistory([1, 2, 3], [4, 4, *outcome.token_ids[:offset]])
            plain = Round(round_.sampling, 5 + offset, (), (), history if round_.history else None)
            assert verify(piece[offset : offset + 1], [plain])[0].token_ids == (token_id,)


def make_trees(dtype: torch.dtype) -> tuple[torch.Tensor, list[Round]]:
    """Rounds of every kind with trees of 1 to 9 nodes whose tokens the target often says."""
    generator = torch.Generator().manual_seed(2)
    rounds, rows = [], []
    for index in range(4 * len(KINDS)):
        sampling = SamplingParams(seed=index, **KINDS[index % len(KINDS)])
        history = TokenHistory([1, 2, 3], [4, 4]) if sampling.needs_history else None
        num_drafts = 1 + index % 9
        parents = [int(torch.randint(-1, node, (), generator=generator)) if node else -1 for node in range(num_drafts)]
        drafts = torch.randperm(VOCAB_SIZE, generator=generator)[:num_drafts].tolist()
        logits = torch.randn(num_drafts + 1, VOCAB_SIZE, generator=generator) * 3
        for node, parent in enumerate(parents):
            logits[parent + 1, drafts[node]] += 9.0
        probs = [SparseDistribution((token_id,), (1.0,)) for token_id in drafts]
        rounds.append(Round(sampling, 5, drafts, probs, history, DraftTree(tuple(parents))))
        rows.append(logits)
    return torch.cat(rows).to(dtype), rounds


def test_a_tree_is_decided_as_the_chain_that_it_accepts():
    """In every mode that is an exact match: the rows of the path, by themselves, decide the same with logprobs."""
    logits, rounds = make_trees(torch.bfloat16)
    for piece, round_ in zip(split(logits, rounds), rounds, strict=True):
        if round_.sampling.acceptance is AcceptanceMode.REJECTION and not round_.sampling.is_greedy:
            continue
        (outcome,) = verify(piece, [round_])
        rows = [0, *(node + 1 for node in outcome.path)]
        drafts = [round_.draft_token_ids[node] for node in outcome.path]
        chain = Round(round_.sampling, 5, drafts, [], round_.history)
        (expected,) = verify(piece[rows], [chain])
        assert (outcome.token_ids, outcome.logprobs) == (expected.token_ids, expected.logprobs)
        assert list(outcome.token_ids[:-1]) == drafts
        parents = [round_.tree.parents[node] for node in outcome.path]
        assert parents == [-1, *outcome.path][:-1]
