"""The proposers that a benchmark can start a stack for: adding one is one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from pilotfish.errors import ConfigError


@dataclass(frozen=True)
class Proposer:
    """How to get drafts from one proposer."""

    name: str
    """In reports and on the command line."""
    request_name: str
    """In a request (SpeculationOptions.proposer)."""
    overrides: tuple[str, ...] = ()
    """Of the configuration, `section.key=value`: what a stack of its own needs."""
    model_key: str = ""
    """Configuration key of its weights; empty: it has none."""

    def with_model(self, model: str) -> Proposer:
        """The same one with other weights. Raises ConfigError when it has none."""
        if not self.model_key:
            raise ConfigError(f"proposer {self.name} has no model, so {self.name}={model} means nothing")
        return replace(self, overrides=(*self.overrides, f"{self.model_key}={model}"))


_CHAIN, _TREE = ("orchestrator.speculation.tree_nodes=0",), ("orchestrator.speculation.tree_nodes=16",)
_CHAINS = (
    # As the configuration has it: the target's drafter if it has one, and the draft service.
    Proposer("auto", "auto"),
    Proposer("draft", "draft"),
    # Looked up in the orchestrator, in the draft service, in the target.
    Proposer("ngram", "ngram"),
    Proposer("suffix", "suffix"),
    Proposer("ngram-remote", "draft", ("draft.proposer=ngram",)),
    Proposer("suffix-remote", "draft", ("draft.proposer=suffix",)),
    Proposer("ngram-in-target", "ngram", ("target.drafter.proposer=none", "target.drafter.lookup=ngram", *_CHAIN)),
    Proposer("suffix-in-target", "suffix", ("target.drafter.proposer=none", "target.drafter.lookup=suffix", *_CHAIN)),
    # In the draft service.
    Proposer("model", "draft", ("draft.proposer=model",), "draft.model"),
    Proposer("eagle3-remote", "draft", ("draft.proposer=eagle3",), "draft.head"),
    # In the target, alone and after a lookup.
    Proposer("eagle3", "eagle3", ("target.drafter.proposer=eagle3", *_CHAIN), "target.drafter.model"),
    Proposer(
        *("eagle3-suffix", "eagle3"),
        ("target.drafter.proposer=eagle3", "target.drafter.lookup=suffix", *_CHAIN),
        "target.drafter.model",
    ),
)
_BRANCHING = ("suffix", "suffix-remote", "suffix-in-target", "model", "eagle3-remote", "eagle3", "eagle3-suffix")
_TREES = tuple(
    replace(proposer, name=f"{proposer.name}-tree", overrides=(*proposer.overrides, *_TREE))
    for proposer in _CHAINS
    if proposer.name in _BRANCHING
)
PROPOSERS: Mapping[str, Proposer] = MappingProxyType({proposer.name: proposer for proposer in (*_CHAINS, *_TREES)})


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
