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

from pilotfish.config import EngineConfig
from pilotfish.engine.process.cores import usable_cores
from pilotfish.errors import InvalidRequestError
from pilotfish.features import default_feature_layers
from pilotfish.models.decoder import Decoder
from pilotfish.models.device import enter_device, resolve_device
from pilotfish.models.factory import build_decoder
from pilotfish.models.loading import LoadedModel, load_model
from pilotfish.models.store.folder import read_metadata, text_fields
from pilotfish.models.store.pull import pull_model
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.training.curve import Curve, CurvePoint
from pilotfish.training.data.conversations import Conversation, read_data, write_text_atomically
from pilotfish.training.data.extract import FeatureExtractor, extend
from pilotfish.training.data.prompts import Prompt, read_prompts
from pilotfish.training.data.recorder import build_recorded_core
from pilotfish.training.data.samples import Sample, SampleStore
from pilotfish.training.data.synthesise import SynthesisConfig, Synthesiser
from pilotfish.training.loop import LoopConfig, TrainingLoop, prefers_bfloat16
from pilotfish.training.model_card import CardFacts, model_card
from pilotfish.training.request import Stage, TrainingRequest, Watcher
from pilotfish.training.trainee import Trainee, new_trainee
from pilotfish.training.workspace import TargetIdentity, Workspace, require_new, require_space

MAX_TOKENS = 1280
"""Length of a conversation: the longest prompts and answers that are synthesised."""

_HELD_OUT_EVERY = 20
_MAX_HELD_OUT = 100
_PROMPT_SHARE = 0.5
"""Prompt tokens for each answer token of self-synthesis, to estimate disk space."""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What a run came to."""

    out: Path
    point: CurvePoint
    """The last evaluation."""


def run_training(request: TrainingRequest, watcher: Watcher) -> TrainingResult:
    """Do all that the request asks for; what can be refused is refused before any time is spent.

    Raises: PilotfishError kinds: InvalidRequestError for data, folders and checkpoints that do not fit;
    ResourceExhaustedError when the disk is full; those of loading a model.
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
        require_space(workspace.root, _needed_bytes(request, folder, data, prompts) - store.num_bytes)
        if data:
            _extract(request, store, data, watcher)
        else:
            _synthesise(request, store, tokenizer, prompts, watcher)
        samples = list(store.read())
        loaded = load_model(request.target, cache_dir=request.cache_dir, device=device)
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


def _needed_bytes(
    request: TrainingRequest, folder: Path, data: Sequence[Conversation], prompts: Sequence[Prompt]
) -> int:
    """Bytes of features, the bulk of what is written: three layers of each token, and the last one of answers."""
    hidden = int(text_fields(read_metadata(folder).config)["hidden_size"])
    if data:
        num_prompt_tokens = sum(line.prompt_len for line in data)
        num_answer_tokens = sum(len(line.token_ids) for line in data) - num_prompt_tokens
    else:
        num_answer_tokens = request.num_answer_tokens
        num_prompt_tokens = int(num_answer_tokens * _PROMPT_SHARE)
        num_prompt_tokens += request.answers_per_prompt * sum(len(prompt.token_ids) for prompt in prompts)
    return (3 * num_prompt_tokens + 4 * num_answer_tokens) * hidden * torch.bfloat16.itemsize


def _synthesise(
    request: TrainingRequest, store: SampleStore, tokenizer: Tokenizer, prompts: Sequence[Prompt], watcher: Watcher
) -> None:
    watcher.stage(Stage.SYNTHESISE, request.num_answer_tokens)
    done = sum(sample.num_answer_tokens for sample in store.read())
    watcher.progress(done)
    if done >= request.num_answer_tokens:
        return
    loaded, decoder, layers = _target(request)
    core, recorder = build_recorded_core(loaded, decoder, layers, request.num_sequences)
    synthesis = SynthesisConfig(
        num_answer_tokens=request.num_answer_tokens,
        answers_per_prompt=request.answers_per_prompt,
        num_sequences=request.num_sequences,
        seed=request.seed,
    )
    Synthesiser(core, recorder, tokenizer, synthesis, prompts).run(store, watcher.progress)


def _extract(
    request: TrainingRequest, store: SampleStore, conversations: Sequence[Conversation], watcher: Watcher
) -> None:
    watcher.stage(Stage.EXTRACT, len(conversations), store.num_conversations)
    if store.num_conversations < len(conversations):
        loaded, decoder, layers = _target(request)
        extractor = FeatureExtractor(decoder, layers, min(MAX_TOKENS, loaded.max_context_tokens))
        extend(store, extractor, conversations, watcher.progress)


def _target(request: TrainingRequest) -> tuple[LoadedModel, Decoder, tuple[int, ...]]:
    """The target, what runs it, and the layers whose inputs are features."""
    torch.set_num_threads(_num_threads(request))
    loaded = load_model(request.target, cache_dir=request.cache_dir)
    layers = default_feature_layers(int(loaded.model.config.get_text_config().num_hidden_layers))
    built = build_decoder(
        loaded,
        EngineConfig(deterministic=False),
        num_threads=_num_threads(request),
        cache_dir=request.cache_dir,
        device=resolve_device(request.device),
    )
    return loaded, built.decoder, layers


def _loop_config(request: TrainingRequest, device: torch.device) -> LoopConfig:
    # Each worker computes on its own: threads of torch's operations would only wait for each other.
    torch.set_num_threads(1)
    return LoopConfig(
        max_epochs=request.max_epochs,
        max_minutes=request.max_minutes,
        learning_rate=request.learning_rate,
        batch_tokens=request.batch_tokens,
        num_workers=1 if device.type == "cuda" else _num_threads(request),
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


def _num_threads(request: TrainingRequest) -> int:
    return request.num_threads or usable_cores()
