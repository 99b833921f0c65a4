"""What a training run is asked to do, and how it reports how far it is."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pilotfish.config import EngineConfig, InternalSecurityConfig
from pilotfish.drafter_registry import DRAFTERS, METHODS, Needs
from pilotfish.engine.process.cores import usable_cores
from pilotfish.errors import ConfigError
from pilotfish.features import default_feature_layers


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """One `pilotfish train`. Raises ConfigError for values out of range."""

    method: str
    """One of drafter_registry.METHODS."""
    target: str
    """Catalogue name, hub id or local folder."""
    out: Path
    """Folder of the finished drafter; must not exist yet."""
    cache_dir: Path
    work: Path | None = None
    """Folder of the state that a killed run goes on from; None: in the cache, by target."""
    data: tuple[Path, ...] = ()
    """Files (jsonl) to learn from; none: synthesis."""
    target_address: str = ""
    """Host and port of a running target that computes the features of the data; empty: it is computed here."""
    security: InternalSecurityConfig = field(default_factory=InternalSecurityConfig)
    """Security of the link to that target."""
    prompts: tuple[Path, ...] = ()
    """Files (jsonl) with prompts that the target answers before it synthesises its own."""
    start_from: Path | None = None
    """Heads of the same kind and target, whose weights are the first; None: the target's own layers are."""
    answers_per_prompt: int = 1
    num_answer_tokens: int = 2_000_000
    """Answer tokens to synthesise."""
    max_minutes: float = 0
    """Time of training; 0: max_epochs decide."""
    max_epochs: float = 4
    learning_rate: float = 1e-3
    batch_tokens: int = 2048
    draft_vocab_size: int = 8192
    """Draft vocabulary of a head; 0: the target's whole vocabulary."""
    num_depths: int = 3
    """Draft depths that eagle3 unrolls, heads of medusa, and what a draft's chains are judged by."""
    num_layers: int = 4
    """Layers of a draft model."""
    exit_layer: int = 0
    """Layers of the target before the block of early_exit; 0: half of them."""
    num_sequences: int = 64
    """Sequences synthesised at once."""
    num_threads: int = 0
    """Threads; 0: the cores of this process."""
    seed: int = 0
    device: str = "cpu"
    """Device, as engine.device."""

    def __post_init__(self) -> None:
        EngineConfig(device=self.device)  # refuses what names no device
        positive = {
            "tokens": self.num_answer_tokens,
            "epochs": self.max_epochs,
            "learning rate": self.learning_rate,
            "batch tokens": self.batch_tokens,
            "depths": self.num_depths,
            "layers": self.num_layers,
            "sequences": self.num_sequences,
            "answers per prompt": self.answers_per_prompt,
        }
        for name, value in positive.items():
            if not value > 0:
                raise ConfigError(f"{name} is {value}; it must be above 0")
        for name, value in {
            "minutes": self.max_minutes,
            "draft vocabulary": self.draft_vocab_size,
            "threads": self.num_threads,
            "exit layer": self.exit_layer,
        }.items():
            if not value >= 0:
                raise ConfigError(f"{name} is {value}; it must be at least 0")
        if self.start_from is not None and DRAFTERS[METHODS[self.method]].needs is not Needs.FEATURES:
            raise ConfigError(f"--start-from takes a head; {self.method} begins with the target's own weights")
        if self.exit_layer and DRAFTERS[METHODS[self.method]].needs is not Needs.LAYERS:
            raise ConfigError(f"--exit-layer is of early_exit; {self.method} has none")
        if self.data and self.prompts:
            raise ConfigError("--data has answers already and --prompts asks for them: give one of the two")
        if self.target_address and not self.data:
            raise ConfigError(
                "--from takes texts with answers, and writes none: let the target answer your prompts first, and give "
                "the answers as --data"
            )

    @property
    def usable_threads(self) -> int:
        return self.num_threads or usable_cores()

    def check_layers(self, num_layers: int) -> None:
        """Raise ConfigError for layers that a target of num_layers lacks, or that its features come too late for."""
        needs = DRAFTERS[METHODS[self.method]].needs
        if needs is Needs.MODEL and self.num_layers >= num_layers:
            most = num_layers - 1
            raise ConfigError(f"--layers is {self.num_layers}; for a target of {num_layers} layers it is 1 to {most}")
        exit_layer = self.exit_layer or num_layers // 2
        first = min(layer for layer in default_feature_layers(num_layers) if layer >= 0)
        if needs is Needs.LAYERS and not first <= exit_layer < num_layers:
            raise ConfigError(
                f"--exit-layer is {exit_layer}; an exit of a target of {num_layers} layers is trained after {first} to "
                f"{num_layers - 1}"
            )


class Stage(enum.StrEnum):
    """Stages in order. A stage whose result is already there is passed through."""

    SYNTHESISE = "synthesise"
    EXTRACT = "extract features"
    TRAIN = "train"
    EVALUATE = "evaluate"
    EXPORT = "export"


class Watcher(Protocol):
    """Learns how far a run is."""

    def stage(self, stage: Stage, total: float, done: float = 0) -> None:
        """A stage begins with `done` of `total` units finished."""

    def progress(self, done: float, note: str = "") -> None:
        """The stage has done so many units; note is what a number alone does not say."""
