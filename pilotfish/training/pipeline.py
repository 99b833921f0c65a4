"""A training run from a target's name to a drafter's folder: synthesise or extract, train, evaluate, export.

Each stage leaves its result in the workspace and starts from what is there, so a run that was killed in any of
them goes on when it is started again.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from pilotfish.errors import InvalidRequestError
from pilotfish.models.device import enter_device, resolve_device
from pilotfish.models.store.folder import read_metadata, text_fields
from pilotfish.models.store.pull import pull_model
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.training.collection import MAX_TOKENS, Collection
from pilotfish.training.curve import Curve, CurvePoint
from pilotfish.training.data.conversations import read_data, write_text_atomically
from pilotfish.training.data.prompts import read_prompts
from pilotfish.training.data.samples import Sample, SampleStore
from pilotfish.training.loop import LoopConfig, TrainingLoop, prefers_bfloat16
from pilotfish.training.model_card import CardFacts, model_card
from pilotfish.training.request import Stage, TrainingRequest, Watcher
from pilotfish.training.target import load_target
from pilotfish.training.trainee import Trainee, new_trainee
from pilotfish.training.workspace import TargetIdentity, Workspace, require_new, require_space

_HELD_OUT_EVERY = 20
_MAX_HELD_OUT = 100


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What a run came to."""

    out: Path
    point: CurvePoint
    """The last evaluation."""


def run_training(request: TrainingRequest, watcher: Watcher) -> TrainingResult:
    """Do all that the request asks for; what can be refused is refused before any time is spent.

    Raises: PilotfishError kinds: InvalidRequestError for data, folders and checkpoints that do not fit;
    ResourceExhaustedError when the disk is full; those of loading a model, and of a running target.
    """
    require_new(request.out)
    device = resolve_device(request.device)
    enter_device(device)
    folder = pull_model(request.target, request.cache_dir)
    request.check_layers(int(text_fields(read_metadata(folder).config)["num_hidden_layers"]))
    tokenizer = Tokenizer.load(folder)
    data = [line for path in request.data for line in read_data(path, tokenizer, MAX_TOKENS)]
    prompts = [prompt for path in request.prompts for prompt in read_prompts(path, tokenizer)]
    workspace = _workspace(request, folder, tokenizer)
    with workspace.locked():
        store = SampleStore(workspace.features(request))
        collection = Collection(request, folder, tokenizer, data, prompts)
        require_space(workspace.root, collection.num_bytes - store.num_bytes)
        collection.add_to(store, watcher)
        samples = list(store.read())
        loaded = load_target(request, device)
        train, held_out = split(samples)
        run_folder = workspace.run(request)
        trainee = new_trainee(request, loaded, train, run_folder)
        loop = TrainingLoop(trainee.objective, train, held_out, _loop_config(request, device), run_folder)
        _train(loop, watcher)
        point = _evaluate(loop, held_out, watcher)
        watcher.stage(Stage.EXPORT, 1)
        facts = CardFacts(request, loaded.model_id, trainee, train, held_out, point)
        _export(request.out, trainee, loop.curve, model_card(facts))
        watcher.progress(1, str(request.out))
    return TrainingResult(request.out, point)


def split(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Conversations to learn from and conversations to judge by; more data at the end moves none of them.

    What answers a prompt that is judged by is not learned from. Raises: InvalidRequestError when one of the two
    would be empty.
    """
    held_out = list(islice(samples, 0, _MAX_HELD_OUT * _HELD_OUT_EVERY, _HELD_OUT_EVERY))
    judged = {id(sample) for sample in held_out}
    # A text has no prompt but its first token.
    prompts = {sample.prompt for sample in held_out if sample.prompt_len > 1}
    train = [sample for sample in samples if id(sample) not in judged and sample.prompt not in prompts]
    if not train:
        raise InvalidRequestError(f"{len(samples)} conversations have a usable answer; at least 2 are needed")
    return train, held_out


def _workspace(request: TrainingRequest, folder: Path, tokenizer: Tokenizer) -> Workspace:
    digest = hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()
    identity = TargetIdentity(folder.name, tokenizer.fingerprint, digest)
    return Workspace(request.work or request.cache_dir / "training" / f"{folder.name}-{digest[:8]}", identity)


def _loop_config(request: TrainingRequest, device: torch.device) -> LoopConfig:
    # Each worker computes on its own: threads of torch's operations would only wait for each other.
    torch.set_num_threads(1)
    return LoopConfig(
        max_epochs=request.max_epochs,
        max_minutes=request.max_minutes,
        learning_rate=request.learning_rate,
        batch_tokens=request.batch_tokens,
        num_workers=1 if device.type == "cuda" else request.usable_threads,
        seed=request.seed,
        bfloat16=device.type == "cuda" or prefers_bfloat16(),
    )


def _train(loop: TrainingLoop, watcher: Watcher) -> None:
    watcher.stage(Stage.TRAIN, 1, loop.share)

    def report(share: float, loss: float) -> None:
        note = f"step {loop.progress.step}, loss {loss:.2f}"
        if loop.curve.points:
            agreement = ", ".join(f"{value:.2f}" for value in loop.curve.points[-1].agreement)
            note += f", held out {agreement}"
        watcher.progress(share, note)

    loop.run(report)


def _evaluate(loop: TrainingLoop, held_out: Sequence[Sample], watcher: Watcher) -> CurvePoint:
    watcher.stage(Stage.EVALUATE, 1)
    point = loop.look(held_out)
    watcher.progress(1, f"mean acceptance length {point.mean_acceptance_length:.2f}")
    return point


def _export(out: Path, trainee: Trainee, curve: Curve, card: str) -> None:
    """The finished folder appears by one rename."""
    partial = out.absolute().parent / f".{out.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir()
        trainee.save(partial)
        curve.write(partial)
        write_text_atomically(partial / "README.md", card)
        partial.replace(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
