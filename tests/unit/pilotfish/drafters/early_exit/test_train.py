"""An exit learns the target's distribution from what its first layers compute."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from pilotfish.config import InTargetDrafterConfig
from pilotfish.drafters.early_exit.checkpoint import load_exit
from pilotfish.drafters.early_exit.draft import build_in_target
from pilotfish.drafters.early_exit.module import ExitHead
from pilotfish.drafters.early_exit.train import ExitObjective, new_head
from pilotfish.errors import ConfigError, UnsupportedModelError
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.loading import LoadedModel, load_model
from pilotfish.training.data.samples import Sample
from pilotfish.training.loop import LoopConfig, TrainingLoop
from pilotfish.training.pipeline import run_training
from pilotfish.training.request import Stage, TrainingRequest, Watcher
from tests.unit.pilotfish.training.conftest import KilledError

DRAFT_TOKENS = torch.tensor([0, 3, 4, 7, 9, 12, 20, 25, 28])


@pytest.fixture
def loaded(tiny_target: LlamaForCausalLM) -> LoadedModel:
    return LoadedModel(tiny_target, Path(), "tiny", 30, 128, "the target's")


def random_head(loaded: LoadedModel, exit_layer: int) -> ExitHead:
    torch.manual_seed(5)
    head = new_head(loaded, DRAFT_TOKENS, exit_layer)
    for parameter in head.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.2)
    return head


def expected_logits(target: LlamaForCausalLM, head: ExitHead, sample: Sample) -> Tensor:
    """[T, Vd], by a model of its own."""
    exit_layer = head.config.exit_layer
    config = {**target.config.to_dict(), "num_hidden_layers": exit_layer + 1, "tie_word_embeddings": False}
    model = LlamaForCausalLM(LlamaConfig(**config))
    model.load_state_dict(target.state_dict(), strict=False)
    model.model.layers[exit_layer].load_state_dict(head.block.state_dict())
    model.model.norm.load_state_dict(head.norm.state_dict())
    model.lm_head = head.lm_head
    logits: Tensor = model(sample.token_ids[None]).logits[0]
    return logits


@pytest.mark.parametrize("exit_layer", [0, 2, 5], ids=["the default", "a feature's", "behind the features"])
def test_loss_is_the_cross_entropy_with_the_target(
    loaded: LoadedModel, computed: Callable[[list[int], int], Sample], exit_layer: int
) -> None:
    samples = [computed([1, 5, 9, 3, 3, 8, 2], 3), computed([4, 4, 7, 20], 1)]
    head = random_head(loaded, exit_layer)
    assert head.config.exit_layer == (exit_layer or 3)
    losses = []
    for sample in samples:
        target_probs = loaded.model(sample.token_ids[None]).logits[0].softmax(-1)[:, DRAFT_TOKENS]
        logits = expected_logits(loaded.model, head, sample)
        losses += list(-(target_probs * logits.log_softmax(-1)).sum(-1)[sample.prompt_len - 1 :])
    objective = ExitObjective(head, loaded.model, 2)
    torch.testing.assert_close(objective.loss(samples, 0.0), torch.stack(losses).mean())
    objective.loss(samples, 0.0).backward()
    assert all(parameter.grad is not None for parameter in head.parameters())


@torch.no_grad()
def test_agreement_counts_drafts(loaded: LoadedModel, computed: Callable[[list[int], int], Sample]) -> None:
    sample = computed([1, 5, 9, 3, 3, 8, 2, 6], 3)
    head = random_head(loaded, 3)
    said = DRAFT_TOKENS[expected_logits(loaded.model, head, sample).argmax(-1)]
    choices = said.clone()
    choices[:2] = -1
    choices[4] += 1  # of the rows 2 to 7, one is wrong
    matched = dataclasses.replace(sample, choices=choices)
    # Drafts of two begin at the rows 2 to 6.
    assert ExitObjective(head, loaded.model, 2).agreement([matched]).tolist() == [5, 4, 4, 4, 3]


def test_layers_that_there_are_not_are_refused(loaded: LoadedModel) -> None:
    with pytest.raises(ConfigError, match="--exit-layer is 6; a target of 6 layers can be left after 1 to 5"):
        new_head(loaded, DRAFT_TOKENS, 6)
    with pytest.raises(ConfigError, match="--exit-layer is of early_exit; medusa has none"):
        TrainingRequest(method="medusa", target="x", out=Path("y"), cache_dir=Path("z"), exit_layer=3)


def test_it_learns(loaded: LoadedModel, computed: Callable[[list[int], int], Sample], tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(1)
    samples = [computed(torch.randint(30, (24,), generator=draw).tolist(), 4) for _ in range(8)]
    objective = ExitObjective(random_head(loaded, 3), loaded.model, 2)
    before = float(objective.loss(samples, 0.0).detach())
    config = LoopConfig(max_epochs=30, batch_tokens=64, warm_up_steps=1, learning_rate=1e-2, bfloat16=False)
    TrainingLoop(objective, samples, samples[:1], config, tmp_path).run()
    assert float(objective.loss(samples, 1.0).detach()) < 0.7 * before


class Killer(Watcher):
    """Ends the run when training has begun, if it is to."""

    def __init__(self, *, kills: bool) -> None:
        self.kills = kills
        self.current = Stage.EXTRACT

    def stage(self, stage: Stage, total: float, done: float = 0) -> None:
        self.current = stage

    def progress(self, done: float, note: str = "") -> None:
        if self.kills and self.current is Stage.TRAIN:
            raise KilledError


def test_a_run_gives_a_folder_that_drafts(target_folder: Path, tmp_path: Path) -> None:
    """Killed, and started again; another exit of the same target has a checkpoint of its own."""
    data = tmp_path / "texts.jsonl"
    data.write_text("\n".join(json.dumps({"text": f"abc def {'gh ' * (index % 7)} ijk"}) for index in range(40)))

    def request(exit_layer: int) -> TrainingRequest:
        return TrainingRequest(
            method="early_exit",
            target=str(target_folder),
            out=tmp_path / f"out-{exit_layer}",
            cache_dir=tmp_path,
            data=(data,),
            max_epochs=2,
            draft_vocab_size=20,
            num_threads=1,
            exit_layer=exit_layer,
        )

    with pytest.raises(KilledError):
        run_training(request(3), Killer(kills=True))
    assert run_training(request(0), Killer(kills=False)).point.step > 0
    result = run_training(request(3), Killer(kills=False))
    card = (result.out / "README.md").read_text()
    assert "| layers of the target | 3 of 4 |" in card
    assert "--exit-layer 3" in card
    loaded = load_model(str(target_folder), cache_dir=tmp_path)
    assert load_exit(tmp_path / "out-0", loaded).config.exit_layer == 2
    decoder = TransformersDecoder(loaded.model, deterministic=False, max_context_tokens=128)
    wanted = InTargetDrafterConfig(proposer="early_exit", model=str(result.out))
    assert build_in_target(wanted, loaded, decoder, top_m=8).allocate(4) > 0
    with pytest.raises(UnsupportedModelError, match=r"trained exit and no model: name it in target\.drafter\.model"):
        load_model(str(result.out), cache_dir=tmp_path)
