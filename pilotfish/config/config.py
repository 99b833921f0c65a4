"""The whole configuration, and how it is read and written."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_type_hints

import yaml
from pydantic import TypeAdapter, ValidationError

from pilotfish.config.deployment import DeploymentConfig
from pilotfish.config.draft import DraftConfig
from pilotfish.config.emulation import EmulationConfig
from pilotfish.config.environment import default_cache_dir, default_config_file, environment, setting_variables
from pilotfish.config.fields import STRICT, require
from pilotfish.config.orchestrator import OrchestratorConfig
from pilotfish.config.paths import PathText
from pilotfish.config.security import SecurityConfig
from pilotfish.config.shipped_heads import shipped_head
from pilotfish.config.target import InTargetDrafterConfig, TargetConfig
from pilotfish.config.telemetry import TelemetryConfig
from pilotfish.config.yaml_file import read_yaml
from pilotfish.drafter_registry import Location, Needs, drafters_of
from pilotfish.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Config:
    """The whole configuration."""

    __pydantic_config__ = STRICT

    target: TargetConfig = field(default_factory=TargetConfig)
    """The target service."""
    draft: DraftConfig = field(default_factory=DraftConfig)
    """The draft service."""
    orchestrator: OrchestratorConfig = field(default_factory=OrchestratorConfig)
    """The orchestrator."""
    emulation: EmulationConfig = field(default_factory=EmulationConfig)
    """Emulated hardware in place of engines."""
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    """Traces, metrics and logs."""
    security: SecurityConfig = field(default_factory=SecurityConfig)
    """Certificates, tokens and API keys."""
    deployment: DeploymentConfig = field(default_factory=DeploymentConfig)
    """Placement and scaling on a Ray cluster."""
    cache_dir: PathText = field(default_factory=default_cache_dir)
    """Folder for models and compiled kernels."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Minimum log level."""

    def __post_init__(self) -> None:
        """Make concrete what depends on other sections: target.drafter, draft.model and draft.head."""
        object.__setattr__(self, "target", dataclasses.replace(self.target, drafter=self._drafter()))
        draft = dataclasses.replace(self.draft, model=self.draft.model or self.target.model)
        head = self._head(draft.head, draft.proposer, draft.model, Location.DRAFT_SERVICE, "draft.head")
        draft = dataclasses.replace(draft, head=head)
        object.__setattr__(self, "draft", draft)
        require(
            not self.draft.learning.enabled or bool(self.learning_head),
            "draft.learning.enabled is true, and no EAGLE-3 head drafts: set target.drafter.proposer or draft.proposer "
            "to eagle3, or draft.learning.enabled to false",
        )

    @property
    def heads(self) -> tuple[str, ...]:
        """Heads and trained exits that the services load, by their names or folders."""
        if self.emulation.is_on:
            return ()
        draft = self.draft
        is_pools = draft.num_replicas > 0 and draft.proposer in drafters_of(Needs.FEATURES, Location.DRAFT_SERVICE)
        return tuple(filter(None, (self.target.drafter.model, draft.head if is_pools else "")))

    @property
    def learning_head(self) -> str:
        """The EAGLE-3 head that drafts, in the target or in the draft service, by its name or folder; empty: none."""
        if self.emulation.is_on:
            return ""
        if self.learns_in_target:
            return self.target.drafter.model
        return self.draft.head if self.draft.proposer == "eagle3" else ""

    @property
    def learns_in_target(self) -> bool:
        """Whether the head that learns, if one does, is the target's: where both places have one, it is."""
        return self.target.drafter.proposer == "eagle3"

    @property
    def learning_folder(self) -> Path:
        """What engines and the trainer share (draft.learning.folder)."""
        if self.draft.learning.folder:
            return Path(self.draft.learning.folder).expanduser()
        names = map(_folder_name, (self.target.model, self.learning_head))
        return Path(self.cache_dir).expanduser() / "learning" / "--".join(names)

    @property
    def default_proposer(self) -> str:
        """Who drafts for a request that does not say, where the target has no drafter: the draft pool, or a lookup in
        the orchestrator, without round trips. With `auto` the pool's lookup is for several orchestrators to share."""
        is_shared = self.orchestrator.num_replicas > 1 and self.draft.num_replicas > 0
        may_choose = self.draft.proposer == "auto" and not self.emulation.is_on
        return self.draft.drafter if may_choose and not is_shared else "draft"

    def _drafter(self) -> InTargetDrafterConfig:
        target, drafter = self.target, self.target.drafter
        keeps_features = target.feature_layers not in ("auto", ())
        may_choose = drafter.proposer == self.draft.proposer == "auto" and not keeps_features
        if may_choose and not self.emulation.is_on:
            for proposer in drafters_of(Needs.FEATURES, Location.TARGET):
                if head := shipped_head(target.model, proposer):
                    lookup = "suffix" if drafter.lookup == "auto" else drafter.lookup
                    return dataclasses.replace(drafter, proposer=proposer, lookup=lookup, model=head)
        model = self._head(drafter.model, drafter.proposer, target.model, Location.TARGET, "target.drafter.model")
        return dataclasses.replace(
            drafter,
            proposer="none" if drafter.proposer == "auto" else drafter.proposer,
            lookup="none" if drafter.lookup == "auto" else drafter.lookup,
            model=model,
        )

    def _head(self, name: str, proposer: str, model: str, location: Location, key: str) -> str:
        """`name`; where the proposer needs a head and none is named, the one that comes with Pilotfish for the model.

        key: of the name, for the message. Raises ConfigError where there is none.
        """
        if name or self.emulation.is_on or proposer not in drafters_of(Needs.FEATURES, location):
            return name
        head = shipped_head(model, proposer)
        require(
            bool(head),
            f"{key} is empty, and no head for {model} comes with Pilotfish: "
            f"name the folder of one, or train it (pilotfish train {proposer})",
        )
        return head


_ADAPTER = TypeAdapter(Config)


def _folder_name(model: str) -> str:
    """The last part of a model's name; where it has more, a digest tells it from others that end alike."""
    path = Path(model).expanduser()
    return path.name if path.name == model else f"{path.name}-{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"


def config_from_dict(values: dict[str, Any], source: str = "the configuration") -> Config:
    """Build a Config; unknown keys and wrong types raise ConfigError naming the key."""
    try:
        config = _ADAPTER.validate_python(values)
    except ValidationError as error:
        lines = [
            _explain([str(part) for part in item["loc"]], item["type"], item["msg"], item["input"])
            for item in error.errors()
        ]
        raise ConfigError(f"{source}: " + "; ".join(dict.fromkeys(lines))) from None
    if truths := list(_truths_as_numbers(values, config)):
        raise ConfigError(f"{source}: " + "; ".join(f"{key} must be a number, not true or false" for key in truths))
    return config


def _truths_as_numbers(value: Any, built: Any, key: str = "") -> Iterator[str]:
    """The keys where `true` or `no` was taken for 1 or 0, as pydantic does. built: what became of the value."""
    if isinstance(value, bool):
        if isinstance(built, int | float) and not isinstance(built, bool):
            yield key
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            part = built.get(name) if isinstance(built, Mapping) else getattr(built, name, None)
            yield from _truths_as_numbers(inner, part, f"{key}.{name}" if key else name)
    elif isinstance(value, list) and isinstance(built, Sequence):
        for place, (inner, part) in enumerate(zip(value, built, strict=False)):
            yield from _truths_as_numbers(inner, part, f"{key}.{place}")


def _explain(path: list[str], kind: str, message: str, value: object) -> str:
    """What is wrong with the value at `path`; of an unknown key also what may have been meant."""
    key = ".".join(path) or "(top level)"
    if kind == "dataclass_type":
        return f"{key} is a section: give values to its keys ({key}.KEY)"
    if kind == "value_error":
        reason = message.removeprefix("Value error, ")  # of `require`: it names the key
        # But not the section, where several are of one kind.
        return reason if not path or f"{path[0]}." in reason else f"{key}: {reason}"
    if value is None and kind != "unexpected_keyword_argument":
        key = ".".join(_known(path))
        return f"{key} has no value: give it one ('' is the empty text), or leave the key out"
    if kind == "tuple_type":
        return f"{key} must be a list, such as [{value}]"
    if kind != "unexpected_keyword_argument":
        return f"{key}: {message}"
    similar = difflib.get_close_matches(path[-1], _keys_of(path[:-1]), n=1)
    return f"{key}: there is no such key" + (f"; did you mean {similar[0]}?" if similar else "")


def _known(path: Sequence[str]) -> Iterator[str]:
    """The path without what pydantic adds of a key that takes several kinds of values: the kind."""
    section: Any = Config
    for name in path:
        if not dataclasses.is_dataclass(section):
            return
        yield name
        section = get_type_hints(section).get(name)


def _keys_of(path: list[str]) -> list[str]:
    """The keys of a section, and those of the sections in it."""
    section: Any = Config
    for name in path:
        section = get_type_hints(section)[name]
    kinds = get_type_hints(section)
    keys = [each.name for each in dataclasses.fields(section)]
    inner = [name for name in keys if dataclasses.is_dataclass(kinds[name])]
    return keys + [f"{name}.{each.name}" for name in inner for each in dataclasses.fields(kinds[name])]


def load_config(path: str | Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """The configuration of this process: a YAML file, then variables of the environment, then `section.key=value`.

    path: None takes $PILOTFISH_CONFIG, and without it the defaults. The values of PILOTFISH__SECTION__KEY variables and
    of overrides are YAML. Raises ConfigError.
    """
    path = path if path is not None else default_config_file() or None
    values = {} if path is None else _read(Path(path))
    variables, process_environment = setting_variables(), environment()
    for variable, key in variables.items():
        override_value(values, key, process_environment[variable], f"${variable}")
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator:
            raise ConfigError(f"override {override!r} must look like section.key=value")
        override_value(values, key, text, f"override {override!r}")
    source = str(path) if path is not None else "the configuration"
    if variables:
        source += " with " + ", ".join(f"${variable}" for variable in variables)
    return config_from_dict(values, source)


def _read(path: Path) -> dict[str, Any]:
    """What a YAML file holds; nothing is a mapping of nothing."""
    values = read_yaml(path, "configuration") or {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path} must hold a mapping of sections (target, draft, orchestrator)")
    return values


def override_value(values: dict[str, Any], key: str, text: str, source: str) -> None:
    """Put the YAML value `text` at `key` (`section.key`). source: what says so, for messages."""
    node = values
    *sections, last = key.split(".")
    for section in sections:
        if node.get(section) is None:  # `target:` with nothing below it
            node[section] = {}
        node = node[section]
        if not isinstance(node, dict):
            raise ConfigError(f"{source}: {section} is not a section")
    try:
        value = yaml.safe_load(text)
        is_text = isinstance(value, dict) and not text.lstrip().startswith("{")  # such as the address `::`
        node[last] = text if is_text else value
    except (yaml.YAMLError, RecursionError):
        raise ConfigError(f"{source}: {text!r} is not a YAML value; quote it: {key}='...'") from None


def config_from_yaml(text: str) -> Config:
    """The Config that config_to_yaml wrote."""
    return config_from_dict(yaml.safe_load(text))


def config_to_yaml(config: Config) -> str:
    """The YAML that loads as this Config."""
    values = _ADAPTER.dump_python(config, mode="json")
    return yaml.safe_dump(values, sort_keys=False)
