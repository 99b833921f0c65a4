"""Files of the configuration, named from the root."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from pilotfish.config import Config, load_config, with_absolute_paths
from pilotfish.config.paths import NamedKind, PathMark

NO_PATHS = {
    "target.host",
    "target.engine.device",
    "draft.proposer",
    "draft.host",
    "draft.engine.device",
    "draft.learning.device",
    "orchestrator.host",
    "orchestrator.http.host",
    "orchestrator.speculation.proposer",
    "orchestrator.speculation.steps.question",
    "emulation.drafter",
    "telemetry.metrics_prefix",
    "telemetry.otlp_endpoint",
    "telemetry.metrics_host",
    "security.internal.server_name",
}
"""Every other text of the configuration has to say in its annotation which kind of path it is."""
ALL_PATHS: dict[NamedKind, Callable[[str], bool]] = {kind: lambda _: True for kind in get_args(NamedKind)}
"""Nothing is known by a name."""


def texts(section: Any, prefix: str = "") -> Iterator[tuple[str, PathMark | None]]:
    """Keys whose values are any text, with their marks."""
    plain = get_type_hints(type(section))
    for name, annotation in get_type_hints(type(section), include_extras=True).items():
        if dataclasses.is_dataclass(plain[name]):
            yield from texts(getattr(section, name), f"{prefix}{name}.")
        elif plain[name] is str:
            marks = [mark for mark in get_args(annotation) if isinstance(mark, PathMark)]
            yield f"{prefix}{name}", marks[0] if marks else None


def value_at(config: Config, key: str) -> Any:
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def test_every_text_is_known_to_be_a_path_or_none() -> None:
    assert {key for key, mark in texts(Config()) if mark is None} == NO_PATHS


def test_every_path_is_named_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").touch()
    marked = [key for key, mark in texts(Config()) if mark is not None]
    assert {"target.model", "security.public.api_keys_file", "cache_dir"} <= set(marked)
    config = with_absolute_paths(
        load_config(overrides=["target.drafter.proposer=eagle3", *(f"{key}=here" for key in marked)]), ALL_PATHS
    )
    assert {value_at(config, key) for key in marked} == {str(tmp_path / "here")}


def test_a_file_that_is_not_there_yet_and_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "llama").mkdir()
    config = with_absolute_paths(load_config(overrides=["target.model=~/llama", "cache_dir=later"]), ALL_PATHS)
    assert config.target.model == str(tmp_path / "llama")
    assert config.cache_dir == str(Path.cwd() / "later")
