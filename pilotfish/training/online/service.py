"""The trainer as a process of its own, at the lowest priority, until a signal ends it."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from pilotfish.config import Config, load_config
from pilotfish.config.shipped_heads import head_folder
from pilotfish.errors import ConfigError, InvalidRequestError, PilotfishError
from pilotfish.learning.ring import open_ring
from pilotfish.learning.versions import TRAINER_LOCK, Versions
from pilotfish.models.device import enter_device, resolve_device
from pilotfish.models.store.folder import read_metadata, text_fields
from pilotfish.rpc.process_memory import settle_memory
from pilotfish.telemetry.logs import configure_logging
from pilotfish.training.data.samples import SampleStore
from pilotfish.training.loop import prefers_bfloat16
from pilotfish.training.online.candidate import OwnData
from pilotfish.training.online.heads import Eagle3Room
from pilotfish.training.online.priority import yield_to_others
from pilotfish.training.online.trainer import MAX_TEXTS, Trainer
from pilotfish.training.pipeline import split
from pilotfish.training.target import load_parts

NAME = "trainer"
POLL_S = 2.0
"""Pause between two looks at a ring in which too little has come."""
RETRY_S = 60.0
"""Pause after an error that a person or time may mend."""

logger = logging.getLogger(__name__)


class _StoppedError(Exception):
    """A signal has come in the middle of a training."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM (exit status 0) or a PilotfishError at the start (one line on stderr, exit status 1).

    Prints `trainer ready on FOLDER (DESCRIPTION)` on standard output.
    """
    parser = argparse.ArgumentParser(prog="python -m pilotfish.training.online")
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file; else $PILOTFISH_CONFIG")
    parser.add_argument("--set", action="append", default=[], metavar="section.key=value", help="may be repeated")
    options = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        config = load_config(options.config, options.set)
        configure_logging(config.log_level, config.telemetry.log_format, NAME)
        run(config, stop)
    except PilotfishError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def run(config: Config, stop: threading.Event) -> None:
    """Learn until `stop` is set. Raises PilotfishError kinds for what cannot work at all."""
    if not config.draft.learning.enabled:
        raise ConfigError("draft.learning.enabled is false: set it to true for the trainer and for the services")
    yield_to_others()
    folder = config.learning_folder
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with FileLock(folder / TRAINER_LOCK, timeout=0):
            trainer = make_trainer(config, stop)
            settle_memory()
            print(f"{NAME} ready on {folder} (version {Versions(folder).serving()} serves)", flush=True)
            learn(trainer, stop)
    except Timeout:
        raise InvalidRequestError(f"another trainer works in {folder}: stop it, or set draft.learning.folder") from None
    except _StoppedError:
        return


def learn(trainer: Trainer, stop: threading.Event) -> None:
    """Turn after turn. What goes wrong is logged, and tried again later: who serves goes on."""
    last = ""
    while not stop.is_set():
        try:
            wait_s = 0.0 if trainer.turn() else POLL_S
            last = ""
        except (PilotfishError, OSError, RuntimeError) as error:  # the last: torch's, of its memory or a device
            if str(error) != last:
                logger.error("nothing is learned for now, and what serves stays: %s", error)
            last, wait_s = str(error), RETRY_S
        stop.wait(wait_s)


def make_trainer(config: Config, stop: threading.Event) -> Trainer:
    """The trainer that the configuration asks for. Raises PilotfishError kinds: for a model or a head, a key, or the
    own data."""
    settings, folder = config.draft.learning, config.learning_folder
    device = resolve_device(settings.device)
    enter_device(device)
    torch.set_num_threads(max(1, settings.num_threads))
    in_target = config.target.model, config.target.lora
    model, adapter = in_target if config.learns_in_target else (config.draft.model, "")
    target = load_parts(model, Path(config.cache_dir).expanduser(), (), device, adapter=adapter)
    hidden_size = int(text_fields(read_metadata(target.folder).config)["hidden_size"])

    def on_progress(share: float, loss: float) -> None:
        del share, loss
        if stop.is_set():
            raise _StoppedError

    return Trainer(
        settings,
        open_ring(config),
        Versions(folder),
        Eagle3Room(target, hidden_size),
        configured=head_folder(config.learning_head),
        own=own_data(settings.data),
        scratch=folder / ".candidate",
        bfloat16=device.type == "cuda" or prefers_bfloat16(),
        on_progress=on_progress,
    )


def own_data(folder: str) -> OwnData:
    """What `pilotfish train` has kept in a folder; nothing where none is named. Raises ConfigError and its kin."""
    if not folder:
        return OwnData()
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise ConfigError(
            f"draft.learning.data {path} is no folder: name one of features that `pilotfish train` has kept, "
            "or leave it empty"
        )
    to_learn, held_out = split(list(SampleStore(path).read()))
    return OwnData(to_learn, held_out[:MAX_TEXTS])
