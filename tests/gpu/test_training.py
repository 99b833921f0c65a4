"""Training on a GPU computes what it computes on the CPU."""

import copy

import torch
from transformers import LlamaForCausalLM

from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.drafters.eagle3.train import Eagle3Objective
from pilotfish.training.data.samples import Sample
from tests.support.tiny_models import tiny_eagle3_config

HIDDEN, VOCAB = 256, 256


def test_loss_and_gradients_of_a_head(reference: LlamaForCausalLM, device: torch.device) -> None:
    """Conversations of unlike lengths, one whose prompt is shorter than a draft."""
    torch.manual_seed(1)
    sizes = {"hidden_size": HIDDEN, "intermediate_size": 512, "head_dim": 64, "vocab_size": VOCAB}
    head = Eagle3Head(tiny_eagle3_config(**sizes, draft_vocab_size=VOCAB))
    samples = [
        Sample(
            prompt_len,
            torch.randint(VOCAB, (length,)),
            torch.randn(length, 3 * HIDDEN),
            torch.randn(length - prompt_len + 1, HIDDEN),
            torch.randint(VOCAB, (length,)),
            torch.full((length,), 9.0),
        )
        for length, prompt_len in ((40, 21), (7, 1), (120, 100))
    ]
    results = []
    for place in (torch.device("cpu"), device):
        objective = Eagle3Objective(copy.deepcopy(head).to(place), copy.deepcopy(reference).to(place), 3)
        there = [sample.to(place) for sample in samples]
        loss = objective.loss(there, progress=1.0)
        gradients = torch.autograd.grad(loss, list(objective.module.parameters()))
        results.append([loss, *gradients, objective.agreement(there)])
    for on_cpu, on_gpu in zip(*results, strict=True):
        torch.testing.assert_close(on_gpu.cpu(), on_cpu, rtol=1e-3, atol=1e-4)
