"""The batched loss of an EAGLE-3 head against a draft that is unrolled token by token."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from transformers import LlamaForCausalLM

from pilotfish.drafters.eagle3.checkpoint import load_eagle3, save_eagle3
from pilotfish.drafters.eagle3.module import Eagle3Head, Rotary
from pilotfish.drafters.eagle3.train import DEPTH_DECAY, Eagle3Objective, learner, new_head
from pilotfish.errors import UnsupportedModelError
from pilotfish.models.loading import LoadedModel
from pilotfish.training.data.samples import Sample
from tests.support.tiny_models import tiny_eagle3_config, tiny_model

HIDDEN, VOCAB, DEPTHS = 16, 30, 3
DRAFT_TOKENS = torch.tensor([0, 3, 4, 7, 9, 12, 20, 25, 28])


@pytest.fixture
def head() -> Eagle3Head:
    torch.manual_seed(3)
    head = Eagle3Head(
        tiny_eagle3_config(
            hidden_size=HIDDEN,
            intermediate_size=24,
            head_dim=4,
            vocab_size=VOCAB,
            draft_vocab_size=len(DRAFT_TOKENS),
            rope_theta=500.0,
        )
    )
    head.set_draft_vocabulary(DRAFT_TOKENS)
    return head


def sample(length: int, prompt_len: int, seed: int) -> Sample:
    draw = torch.Generator().manual_seed(seed)
    return Sample(
        prompt_len,
        torch.randint(VOCAB, (length,), generator=draw),
        torch.randn(length, 3 * HIDDEN, generator=draw),
        torch.randn(length - prompt_len + 1, HIDDEN, generator=draw),
        torch.randint(VOCAB, (length,), generator=draw),
        torch.full((length,), 5.0),
    )


def unrolled_logits(
    head: Eagle3Head, tiny_target: LlamaForCausalLM, sample: Sample, start: int, depths: int = DEPTHS
) -> Tensor:
    """[depths, Vd]: one draft that starts at row `start`, given the true tokens, with a growing list of keys."""
    embeddings = tiny_target.get_input_embeddings().weight[sample.token_ids]
    hidden = head.fuse(sample.features[:start])  # of the rows 1 to start: row 0 has no feature and no key
    positions = torch.arange(1, start + 1)
    query, keys, values = head.midlayer.project(embeddings[1 : start + 1], hidden, Rotary(head.config, positions))
    query, hidden, logits = query[-1:], hidden[-1:], []
    for depth in range(depths):
        if depth:
            row = slice(start + depth, start + depth + 1)
            query, key, value = head.midlayer.project(
                embeddings[row], hidden, Rotary(head.config, torch.tensor([start + depth]))
            )
            keys, values = torch.cat((keys, key)), torch.cat((values, value))
        attended = functional.scaled_dot_product_attention(
            query.transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1), enable_gqa=True
        )
        hidden = head.midlayer.finish(attended.transpose(0, 1).flatten(1), hidden)
        logits.append(head.logits(hidden)[0])
    return torch.stack(logits)


def starts(sample: Sample, depth: int) -> list[int]:
    """Rows where a draft starts whose token at this depth lies in the answer (or right after it)."""
    return [
        row - depth
        for row in range(sample.prompt_len - 1, len(sample.token_ids))
        if row - depth >= max(1, sample.prompt_len - DEPTHS)
    ]


@pytest.mark.parametrize("at_once", [False, True])
def test_loss_is_that_of_unrolled_drafts(head: Eagle3Head, tiny_target: LlamaForCausalLM, at_once: bool) -> None:
    """Two conversations in a batch, one whose prompt is shorter than a draft; attention as on a CPU and on a GPU."""
    samples = [sample(11, 5, seed=1), sample(6, 1, seed=2)]
    expected = torch.zeros(())
    output = tiny_target.get_output_embeddings().weight[DRAFT_TOKENS]
    for depth in range(DEPTHS):
        losses = []
        for one in samples:
            for start in starts(one, depth):
                row = start + depth
                probs = (one.last_hidden[row] @ output.T - one.log_mass[row]).exp()
                logits = unrolled_logits(head, tiny_target, one, start, depth + 1)[depth]
                losses.append(-(probs * logits.log_softmax(-1)).sum())
        expected = expected + DEPTH_DECAY**depth * torch.stack(losses).mean()
    expected = expected / sum(DEPTH_DECAY**depth for depth in range(DEPTHS))
    objective = Eagle3Objective(head, tiny_target, DEPTHS)
    objective.attends_at_once = at_once
    loss = objective.loss(samples, progress=0.9)
    torch.testing.assert_close(loss, expected)
    parameters = list(head.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_a_run_begins_with_the_first_depth(head: Eagle3Head, tiny_target: LlamaForCausalLM) -> None:
    samples = [sample(11, 5, seed=1)]
    objective = Eagle3Objective(head, tiny_target, DEPTHS)
    shallow = Eagle3Objective(head, tiny_target, 1)
    torch.testing.assert_close(objective.loss(samples, 0.1), shallow.loss(samples, 0.9))
    assert objective.loss(samples, 0.5) != objective.loss(samples, 0.1)


def test_choices_alone_are_learned_as_certain(head: Eagle3Head, tiny_target: LlamaForCausalLM) -> None:
    """In one batch with a sample whose distributions are known; what the head cannot propose teaches nothing."""
    known, hard = sample(11, 5, seed=1), sample(9, 3, seed=2)
    choices = torch.tensor([-1, -1, 3, 4, 1, 28, 0, 2, 9])  # 1 and 2 are not in the draft vocabulary
    hard = Sample(3, hard.token_ids, hard.features, hard.answer_hidden[:0], choices, torch.zeros(9))
    objective = Eagle3Objective(head, tiny_target, 1)
    losses = [
        -unrolled_logits(head, tiny_target, hard, row, 1)[0].log_softmax(-1)[DRAFT_TOKENS.tolist().index(choice)]
        for row, choice in enumerate(choices.tolist())
        if choice in DRAFT_TOKENS
    ]
    torch.testing.assert_close(objective.loss([hard], 0.9), torch.stack(losses).sum() / 7)
    both = (7 * objective.loss([hard], 0.9) + 7 * objective.loss([known], 0.9)) / 14
    torch.testing.assert_close(objective.loss([known, hard], 0.9), both)


@pytest.mark.parametrize("counts", [None, {5: 9, 6: 4, 25: 1}])
def test_a_head_goes_on_where_it_was(
    head: Eagle3Head, tiny_target: LlamaForCausalLM, tmp_path: Path, counts: dict[int, int] | None
) -> None:
    """Tokens that are frequent take the place of others; what it thinks of those that stay is the same."""
    save_eagle3(head, tmp_path, dtype=torch.float32)
    loaded = LoadedModel(tiny_target, tmp_path, "tiny", VOCAB, 256, "")
    trainee = learner(tmp_path, loaded, DEPTHS, counts)
    module = trainee.objective.module
    assert isinstance(module, Eagle3Head)
    kept = [0, 3, 4, 7, 9, 12, 25] if counts else DRAFT_TOKENS.tolist()
    own, new = DRAFT_TOKENS.tolist(), module.target_token_ids.tolist()
    assert new == (sorted([*kept, 5, 6]) if counts else own)
    one = sample(11, 5, seed=1)
    before, after = (unrolled_logits(each, tiny_target, one, 6) for each in (head, module))
    torch.testing.assert_close(
        after[:, [new.index(token) for token in kept]], before[:, [own.index(token) for token in kept]]
    )
    assert all(parameter.requires_grad for parameter in module.parameters())
    trainee.save(tmp_path / "saved")
    assert load_eagle3(tmp_path / "saved", num_target_layers=6).target_token_ids.tolist() == new


@torch.no_grad()
def test_agreement_counts_drafts(head: Eagle3Head, tiny_target: LlamaForCausalLM) -> None:
    """The target's choices are set to what the head drafts, but for one row: every draft through it breaks there."""
    one = sample(12, 4, seed=4)
    objective = Eagle3Objective(head, tiny_target, DEPTHS)
    drafts = {
        start: DRAFT_TOKENS[unrolled_logits(head, tiny_target, one, start).argmax(-1)].tolist()
        for start in range(3, 10)
    }
    choices = one.choices.clone()
    for start in drafts:
        choices[start] = drafts[start][0]
    matched = Sample(one.prompt_len, one.token_ids, one.features, one.answer_hidden, choices, one.log_mass)
    single = [sum(drafts[s][d] == int(choices[s + d]) for s in drafts) for d in range(DEPTHS)]
    chained = [
        sum(all(drafts[s][e] == int(choices[s + e]) for e in range(d + 1)) for s in drafts) for d in range(DEPTHS)
    ]
    assert objective.agreement([matched]).tolist() == [7, *single, *chained]
    assert single[0] == 7
    assert single[1] < 7
    both = objective.agreement([matched, sample(6, 1, seed=2), matched]).tolist()
    assert both[0] == 7 + 3 + 7


@pytest.mark.parametrize("kind", ["gpt2", "phi3"])
def test_a_target_of_other_layers_is_refused(tmp_path: Path, kind: str) -> None:
    target = LoadedModel(tiny_model(kind, torch.float32), tmp_path, kind, 96, 256, "")
    with pytest.raises(UnsupportedModelError, match=r"another form \(.*: train medusa or draft"):
        new_head(target, torch.arange(50))
