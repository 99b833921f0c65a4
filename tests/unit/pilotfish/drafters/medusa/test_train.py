"""Medusa heads learn the target's distribution further ahead."""

from collections.abc import Callable

import torch
from transformers import LlamaForCausalLM

from pilotfish.drafters.medusa.config import MedusaConfig
from pilotfish.drafters.medusa.module import MedusaHeads
from pilotfish.drafters.medusa.train import HEAD_DECAY, MedusaObjective
from pilotfish.training.data.samples import Sample

DRAFT_TOKENS = torch.tensor([0, 3, 4, 7, 9, 12, 20, 25, 28])


def random_heads() -> MedusaHeads:
    torch.manual_seed(5)
    heads = MedusaHeads(MedusaConfig(hidden_size=16, vocab_size=30, num_heads=2, draft_vocab_size=len(DRAFT_TOKENS)))
    heads.token_map.copy_(DRAFT_TOKENS)
    for parameter in heads.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return heads


def test_loss_is_the_cross_entropy_with_the_rows_ahead(
    tiny_target: LlamaForCausalLM, computed: Callable[[list[int], int], Sample]
) -> None:
    samples = [computed([1, 5, 9, 3, 3, 8, 2], 3), computed([4, 4, 7, 20], 1)]
    heads = random_heads()
    expected = torch.zeros(())
    for k in range(2):
        losses = []
        for sample in samples:
            target_probs = tiny_target(sample.token_ids[None]).logits[0].softmax(-1)[:, DRAFT_TOKENS]
            for row in range(sample.prompt_len - 1, len(sample.token_ids) - 2):
                logits = heads.logits(k, sample.last_hidden[row])
                losses.append(-(target_probs[row + k + 1] * logits.log_softmax(-1)).sum())
        expected = expected + HEAD_DECAY**k * torch.stack(losses).mean()
    expected = expected / (1 + HEAD_DECAY)
    torch.testing.assert_close(MedusaObjective(heads, tiny_target).loss(samples, 0.0), expected)


@torch.no_grad()
def test_agreement_counts_drafts(tiny_target: LlamaForCausalLM, computed: Callable[[list[int], int], Sample]) -> None:
    sample = computed([1, 5, 9, 3, 3, 8, 2, 6], 3)
    heads = random_heads()
    drafts = {
        row: [int(DRAFT_TOKENS[heads.logits(k, sample.last_hidden[row]).argmax()]) for k in range(2)]
        for row in range(2, 6)
    }
    choices = sample.choices.clone()
    choices[3], choices[5] = drafts[2][0], drafts[4][0]
    choices[4], choices[6] = drafts[2][1], drafts[4][1] + 1
    matched = Sample(3, sample.token_ids, sample.features, sample.answer_hidden, choices, sample.log_mass)
    single = [sum(drafts[row][k] == int(choices[row + k + 1]) for row in drafts) for k in range(2)]
    both = sum(all(drafts[row][k] == int(choices[row + k + 1]) for k in range(2)) for row in drafts)
    assert MedusaObjective(heads, tiny_target).agreement([matched]).tolist() == [4, *single, single[0], both]
    assert both >= 1
    assert single[0] > both
