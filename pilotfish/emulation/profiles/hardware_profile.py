"""A profile: the costs and the limits of one kind of machine running one pair of models."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import yaml
from pydantic import NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from pilotfish.config.fields import STRICT
from pilotfish.config.yaml_file import read_yaml
from pilotfish.emulation.profiles.drafter import ProfiledDrafter
from pilotfish.emulation.profiles.step_cost import AnyCost
from pilotfish.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class HardwareProfile:
    """Target and draft replica of a deployment, as far as time and room go.

    A proposal of K tokens for B sequences takes K draft steps of B sequences and B tokens.
    """

    __pydantic_config__ = STRICT

    name: str
    description: str
    """One line for people: models, machines, and whether the figures were measured."""
    target: AnyCost
    """Costs of a target replica's steps."""
    draft: AnyCost
    """Costs of a draft replica's steps."""
    target_gpus: NonNegativeInt = 0
    """GPUs of a target replica; 0: it runs on CPUs."""
    draft_gpus: NonNegativeInt = 0
    """GPUs of a draft replica."""
    kv_cache_tokens: PositiveInt
    """Tokens that a target replica's KV cache holds, over all sequences."""
    draft_kv_cache_tokens: PositiveInt
    """Tokens that a draft replica's KV cache holds, over all sequences."""
    max_sequences: PositiveInt
    """Sequences that a replica holds at once, either kind."""
    max_batch_tokens: PositiveInt
    """Token rows of a step at most: bounds the time that decodes wait behind a prefill."""
    max_context_tokens: PositiveInt
    """Prompt plus output of a sequence at most."""
    drafters: tuple[ProfiledDrafter, ...] = ()
    """Drafters that a plan compares, `draft` not among them unless it is listed again."""
    sources: tuple[str, ...] = field(default=())
    """Sources of the figures, with the arithmetic."""

    def drafter(self, name: str) -> ProfiledDrafter:
        """The drafter of this name. Raises ConfigError where there is none."""
        for drafter in self.drafters:
            if drafter.name == name:
                return drafter
        known = ", ".join(drafter.name for drafter in self.drafters) or "none"
        raise ConfigError(f"profile {self.name} has no drafter {name!r}: it has {known}")


_ADAPTER = TypeAdapter(HardwareProfile)
_DATA = resources.files("pilotfish.emulation.profiles") / "data"


def profile_names() -> tuple[str, ...]:
    """The profiles that come with Pilotfish."""
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in _DATA.iterdir() if entry.name.endswith(".yaml")))


def is_local(name_or_path: str) -> bool:
    """Whether `load_profile` takes it for a file of this machine."""
    return name_or_path not in profile_names() and _is_file(Path(name_or_path).expanduser())


def load_profile(name_or_path: str) -> HardwareProfile:
    """A profile that comes with Pilotfish, or one in a YAML file.

    Raises: ConfigError when there is neither, or when the file is no profile.
    """
    if name_or_path in profile_names():
        with resources.as_file(_DATA / f"{name_or_path}.yaml") as path:
            values = read_yaml(path, "hardware profile")
    else:
        values = read_yaml(_existing(name_or_path), "hardware profile")
    try:
        return _ADAPTER.validate_python(values)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg']}" for item in error.errors()]
        raise ConfigError(f"profile {name_or_path}: " + "; ".join(lines)) from None


def _existing(name_or_path: str) -> Path:
    path = Path(name_or_path).expanduser()
    if not _is_file(path):
        known = ", ".join(profile_names())
        raise ConfigError(f"no profile {name_or_path!r}: known are {known}, or give the path of a file")
    return path


def _is_file(path: Path) -> bool:
    """A pipe counts as well."""
    try:
        return path.exists() and not path.is_dir()
    except OSError:  # too long for a name, or in a folder that is closed to us
        return False


def profile_to_yaml(profile: HardwareProfile) -> str:
    """The YAML that load_profile reads as this profile."""
    # Lists of numbers on one line each: a measured table stays a table.
    values = _ADAPTER.dump_python(profile, mode="json")
    return yaml.safe_dump(values, sort_keys=False, default_flow_style=None, width=120)
