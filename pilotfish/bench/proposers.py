"""The proposers that a benchmark can start a stack for: each drafter at each place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from pilotfish.drafter_registry import DRAFTERS, DrafterKind, Location, Needs
from pilotfish.errors import ConfigError


@dataclass(frozen=True)
class Proposer:
    """How to get drafts from one proposer."""

    name: str
    """Name in reports and on the command line."""
    request_name: str
    """Name in a request (SpeculationOptions.proposer)."""
    overrides: tuple[str, ...] = ()
    """Configuration values, `section.key=value`, that a stack of its own needs."""
    model_key: str = ""
    """Configuration key of its weights; empty: it has none."""

    def with_model(self, model: str) -> Proposer:
        """The proposer with other weights. Raises ConfigError when it has none."""
        if not self.model_key:
            raise ConfigError(f"proposer {self.name} has no model, so {self.name}={model} means nothing")
        return replace(self, overrides=(*self.overrides, f"{self.model_key}={model}"))


_CHAIN, _TREE = ("orchestrator.speculation.tree_nodes=0",), ("orchestrator.speculation.tree_nodes=16",)
_PRICED = ("orchestrator.speculation.tree_nodes=auto",)
"""Trees of drafters in the draft service that know how likely their tokens are."""
_SUFFIXES = {Location.ORCHESTRATOR: "", Location.DRAFT_SERVICE: "-remote", Location.TARGET: "-in-target"}
"""Suffix of a drafter's name where it runs elsewhere than at its first place."""
_WEIGHTS = {Needs.MODEL: "draft.model", Needs.FEATURES: "draft.head"}


def _placed(drafter: str, kind: DrafterKind, location: Location) -> Proposer:
    name = drafter if location is kind.runs_in[0] else drafter + _SUFFIXES[location]
    if location is Location.ORCHESTRATOR:
        return Proposer(name, drafter)
    if location is Location.DRAFT_SERVICE:
        return Proposer(name, "draft", (f"draft.proposer={drafter}", *_CHAIN), _WEIGHTS.get(kind.needs, ""))
    if kind.needs is Needs.TEXT:
        return Proposer(name, drafter, ("target.drafter.proposer=none", f"target.drafter.lookup={drafter}", *_CHAIN))
    return Proposer(name, drafter, (f"target.drafter.proposer={drafter}", *_CHAIN), "target.drafter.model")


def _after_suffix(proposer: Proposer) -> Proposer:
    key = "orchestrator.speculation.lookup" if proposer.request_name == "draft" else "target.drafter.lookup"
    return replace(proposer, name=f"{proposer.name}-suffix", overrides=(*proposer.overrides, f"{key}=suffix"))


def _as_tree(proposer: Proposer, kind: DrafterKind) -> Proposer:
    is_priced = proposer.request_name == "draft" and kind.needs is not Needs.TEXT
    tree = _PRICED if is_priced else _TREE
    return replace(proposer, name=f"{proposer.name}-tree", overrides=(*proposer.overrides, *tree))


def _proposers() -> Iterator[Proposer]:
    # As the configuration has it: the target's drafter if it has one, and the draft service.
    yield Proposer("auto", "auto")
    yield Proposer("draft", "draft")
    for drafter, kind in DRAFTERS.items():
        if kind.needs is Needs.GRAMMAR:  # it drafts beside each
            continue
        placed = [_placed(drafter, kind, location) for location in kind.runs_in]
        if kind.needs is not Needs.TEXT:
            placed += map(_after_suffix, tuple(placed))
        yield from placed
        if kind.gives_trees:
            yield from (_as_tree(each, kind) for each in placed)


PROPOSERS: Mapping[str, Proposer] = MappingProxyType({proposer.name: proposer for proposer in _proposers()})


def parse_proposers(texts: Sequence[str]) -> list[Proposer]:
    """`NAME` or `NAME=MODEL` each, commas between several. Raises ConfigError naming what there is."""
    proposers = []
    for text in ",".join(texts).split(","):
        name, separator, model = text.strip().partition("=")
        proposer = PROPOSERS.get(name)
        if proposer is None:
            raise ConfigError(f"proposer {name!r} is unknown; known are {', '.join(PROPOSERS)}")
        proposers.append(proposer.with_model(model) if separator else proposer)
    names = [proposer.name for proposer in proposers]
    if len(set(names)) < len(names):
        raise ConfigError(f"a proposer is named twice in {', '.join(names)}")
    return proposers
