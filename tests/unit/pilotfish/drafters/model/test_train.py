"""A stand-alone draft model is made of the target's layers and learns its distribution."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from pilotfish.drafters.model.train import DraftObjective, new_draft_model
from pilotfish.models.loading import LoadedModel
from pilotfish.training.data.samples import Sample


@pytest.fixture
def loaded(tiny_target: LlamaForCausalLM, tmp_path: Path) -> LoadedModel:
    return LoadedModel(tiny_target, tmp_path, "tiny", 30, 64, "abc")


def test_new_model_has_the_first_layers_and_the_last(loaded: LoadedModel) -> None:
    draft = new_draft_model(loaded, 3)
    ours, theirs = draft.state_dict(), loaded.model.state_dict()
    for new, old in enumerate((0, 1, 5)):
        name = "model.layers.{}.mlp.up_proj.weight"
        assert torch.equal(ours[name.format(new)], theirs[name.format(old)])
    assert torch.equal(ours["model.embed_tokens.weight"], theirs["model.embed_tokens.weight"])
    assert draft.config.num_hidden_layers == 3
    assert loaded.model.config.num_hidden_layers == 6


def test_loss_is_the_cross_entropy_with_the_target(
    loaded: LoadedModel, tiny_target: LlamaForCausalLM, computed: Callable[[list[int], int], Sample]
) -> None:
    samples = [computed([1, 5, 9, 3, 3, 8, 2], 3), computed([4, 4, 7, 20], 1)]
    draft = new_draft_model(loaded, 2)
    losses = []
    for sample in samples:
        probs = tiny_target(sample.token_ids[None]).logits[0].softmax(-1)
        log_probs = draft(sample.token_ids[None]).logits[0].log_softmax(-1)
        losses.append(-(probs * log_probs).sum(-1)[sample.prompt_len - 1 :])
    expected = torch.cat(losses).mean()
    loss = DraftObjective(draft, tiny_target, 2).loss(samples, 0.0)
    torch.testing.assert_close(loss, expected)
    parameters = list(draft.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_agreement_counts_chains(
    loaded: LoadedModel, tiny_target: LlamaForCausalLM, computed: Callable[[list[int], int], Sample]
) -> None:
    """With the draft's own choices but for one row, the chains through it break there."""
    sample = computed([1, 5, 9, 3, 3, 8, 2], 3)
    draft = new_draft_model(loaded, 2)
    choices = draft(sample.token_ids[None]).logits[0].argmax(-1)
    choices[3] = (choices[3] + 1) % 30
    matched = Sample(3, sample.token_ids, sample.features, sample.answer_hidden, choices, sample.log_mass)
    short = computed([1, 5, 9], 3)
    # Rows 2 to 6; drafts of two start at 2, 3, 4, 5.
    assert DraftObjective(draft, tiny_target, 2).agreement([matched, short]).tolist() == [4, 3, 3, 3, 2]
