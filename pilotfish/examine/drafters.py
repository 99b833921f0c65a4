"""Which drafters are examined, and the configuration that runs each. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pilotfish.config import Config
from pilotfish.config.target import InTargetDrafterConfig
from pilotfish.drafter_registry import DRAFTERS, Location, Needs
from pilotfish.errors import ConfigError


@dataclass(frozen=True)
class NamedDrafter:
    """A kind of drafter, and its weights."""

    kind: str
    model: str = ""
    """Empty: what the configuration, or Pilotfish, has for the target."""

    @property
    def name(self) -> str:
        return f"{self.kind}={self.model}" if self.model else self.kind

    @property
    def is_in_target(self) -> bool:
        """Whether it is examined in the target; acceptance is the same elsewhere."""
        return Location.TARGET in DRAFTERS[self.kind].runs_in


def parse_drafters(texts: Sequence[str], config: Config) -> list[NamedDrafter]:
    """`KIND` or `KIND=MODEL` each; of none those that are configured. Raises ConfigError naming the kinds there are."""
    drafters = [NamedDrafter(kind, model) for kind, _, model in (text.partition("=") for text in texts)]
    for drafter in drafters:
        if drafter.kind not in DRAFTERS:
            raise ConfigError(f"there is no drafter {drafter.kind!r}: known are {', '.join(DRAFTERS)}")
        if drafter.model and DRAFTERS[drafter.kind].needs is Needs.TEXT:
            raise ConfigError(f"{drafter.kind} looks drafts up and has no model: leave out ={drafter.model}")
    if len({drafter.name for drafter in drafters}) < len(drafters):
        raise ConfigError(f"a drafter is named twice in {' '.join(texts)}")
    return drafters or _configured(config)


def _configured(config: Config) -> list[NamedDrafter]:
    in_target, pool = config.target.drafter, config.draft
    found = [NamedDrafter(in_target.proposer, in_target.model)] if in_target.proposer != "none" else []
    if DRAFTERS[pool.drafter].needs is Needs.FEATURES:
        found.append(NamedDrafter(pool.drafter, pool.head))
    elif DRAFTERS[pool.drafter].needs is Needs.MODEL:
        found.append(NamedDrafter(pool.drafter, pool.model))
    return [*dict.fromkeys(found), NamedDrafter("suffix")]


def configured_for(config: Config, drafter: NamedDrafter) -> Config:
    """The configuration with this drafter and no other. Raises ConfigError where it needs weights and has none."""
    needs, target, draft = DRAFTERS[drafter.kind].needs, config.target, config.draft
    wanted = InTargetDrafterConfig(proposer="none", lookup="none")
    draft = replace(draft, proposer="suffix" if drafter.is_in_target else drafter.kind, head="")
    draft = replace(draft, suffix_shared_tokens=0)  # the same prompt's greedy answer would draft the sampled one
    if needs is Needs.TEXT:
        wanted = replace(wanted, lookup=drafter.kind)
    elif needs is Needs.MODEL:
        draft = replace(draft, model=drafter.model or draft.model)
        if draft.model == target.model and draft.engine.quantization == "none" and draft.engine.device == "cpu":
            draft = replace(draft, engine=replace(draft.engine, quantization="int4"))  # a copy as it is gains nothing
    else:
        exit_layer = target.drafter.exit_layer if target.drafter.proposer == drafter.kind else 0
        wanted = replace(wanted, proposer=drafter.kind, model=drafter.model, exit_layer=exit_layer)
    draft = replace(draft, learning=replace(draft.learning, enabled=False))  # nothing changes while it is examined
    return replace(config, target=replace(target, drafter=wanted, feature_layers=()), draft=draft)


def settings_for(config: Config) -> dict[str, object]:
    """What a configuration file says of the drafter that configured_for has chosen."""
    drafter, draft, target = config.target.drafter, config.draft, {"model": config.target.model}
    if config.target.lora:
        target["lora"] = config.target.lora
    names = ("proposer", "lookup", "model", "exit_layer")
    chosen = {name: value for name in names if (value := getattr(drafter, name))}
    service: dict[str, object] = {"proposer": "auto"}
    if draft.proposer == "model":
        engine = {"quantization": draft.engine.quantization}
        # Of the target's own vocabulary it is left alone.
        service = {"proposer": "model", "model": draft.model, "vocabulary": "auto", "engine": engine}
    if drafter.proposer != "eagle3":
        service["learning"] = {"enabled": False}  # it trains such a head alone, and is refused without
    return {"target": {**target, "drafter": chosen}, "draft": service}
