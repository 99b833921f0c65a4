"""The models' architectures: whether the engines would answer right with them, found out without their weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from pilotfish.cli.checks.finding import CheckFinding, Severity
from pilotfish.cli.checks.probe import ask_process
from pilotfish.config import Config
from pilotfish.drafter_registry import Location, Needs, drafters_of
from pilotfish.errors import ModelError
from pilotfish.models.store.catalogue import resolve
from pilotfish.models.store.model_store import ModelCache
from pilotfish.models.store.pull import cached_folder

ServingProbe = Callable[[Sequence[str]], dict[str, dict[str, str]]]
"""Model folders to how a start would serve each: `path`, or `refusal`."""


def probe_serving(folders: Sequence[str]) -> dict[str, dict[str, str]]:
    """What `model_probe` says. Raises OSError, with its last words, if it says nothing."""
    return ask_process("pilotfish.cli.checks.model_probe", folders)


def check_architectures(config: Config, probe: ServingProbe = probe_serving) -> Iterator[CheckFinding]:
    """Each model that an engine would compute and that is there. Emulated engines compute none."""
    names = {config.target.model}
    if config.draft.num_replicas and config.draft.proposer in drafters_of(Needs.MODEL, Location.DRAFT_SERVICE):
        names.add(config.draft.model)
    cache = ModelCache(Path(config.cache_dir).expanduser())
    folders: dict[str, str] = {}
    for name in () if config.emulation.is_on else sorted(names):
        if (found := _folder(name, cache)) is not None:
            folders[str(found)] = name
    if not folders or find_spec("torch") is None:
        return
    try:
        verdicts = probe(sorted(folders))
    except OSError as error:
        yield CheckFinding(
            "architecture", Severity.PROBLEM, f"it cannot be checked: {error}", "install Pilotfish again"
        )
        return
    for folder, verdict in verdicts.items():
        name = folders[folder]
        if refusal := verdict.get("refusal"):
            yield CheckFinding("architecture", Severity.PROBLEM, refusal, f"choose another model than {name}")
        else:
            yield CheckFinding("architecture", Severity.OK, f"{name} is answered as by transformers, {verdict['path']}")


def _folder(name: str, cache: ModelCache) -> Path | None:
    try:
        return cached_folder(resolve(name), cache)
    except (ModelError, OSError):  # the check of the cache has said so
        return None
