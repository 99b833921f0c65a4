"""The drafters that there are: what each needs, where it runs and what it gives. Torch-free.

A drafter NAME is a room, the package `pilotfish.drafters.NAME`, and a row here:
- `draft.py`. Of Needs.TEXT it has `lookup` (see speculation.lookup.index.Lookup); of Needs.FEATURES
  `build_in_target` and `build_standalone`, as in `eagle3`; of Needs.LAYERS `build_in_target`; of Needs.GRAMMAR
  `GrammarDrafter`; of Needs.MODEL there is none, because the engine runs any causal LM.
- `train.py`, if `trained_as` is given: `new_trainee` (see training.trainee), and `needed_layers`, those of the target
  that it looks into.

Rooms stand above those who ask for them, and some import torch: they are imported by name, when they are needed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

from pilotfish.features import default_feature_layers


class Needs(enum.Enum):
    """What a drafter drafts from."""

    TEXT = enum.auto()
    """The tokens alone: a lookup."""
    FEATURES = enum.auto()
    """Hidden states of the target, and weights trained for it."""
    LAYERS = enum.auto()
    """The target's own first layers; weights trained for it, if any."""
    MODEL = enum.auto()
    """A model of its own, with the target's tokenizer."""
    GRAMMAR = enum.auto()
    """The request's grammar. It drafts beside any other drafter, and no request names it as its proposer."""


class Location(enum.Enum):
    """Where a drafter runs."""

    ORCHESTRATOR = enum.auto()
    TARGET = enum.auto()
    DRAFT_SERVICE = enum.auto()


@dataclass(frozen=True, kw_only=True)
class DrafterKind:
    """A row. Every drafter gives chains, with distributions where the target needs them."""

    needs: Needs
    runs_in: tuple[Location, ...]
    """The first is what its bare name means in benchmarks."""
    gives_trees: bool
    drafts_ahead: bool = False
    """Whether a draft service drafts while the target verifies. Not a lookup, which takes no time to speak of, and not
    Medusa heads, which look at the last committed token's hidden state alone."""
    feature_layers: Callable[[int], tuple[int, ...]] | None = None
    """Layers whose inputs it takes, of a target with so many, whose number stands for what leaves the last one, normed;
    None where it needs no features."""
    reads_text: bool = True
    """Whether features of the whole text make its drafts better; else those of the last token are all it looks at."""
    trained_as: str = ""
    """Name in `pilotfish train`; empty: it is not trained there."""


_ANYWHERE = (Location.ORCHESTRATOR, Location.DRAFT_SERVICE, Location.TARGET)

DRAFTERS: Mapping[str, DrafterKind] = MappingProxyType(
    {
        "ngram": DrafterKind(needs=Needs.TEXT, runs_in=_ANYWHERE, gives_trees=False),
        "suffix": DrafterKind(needs=Needs.TEXT, runs_in=_ANYWHERE, gives_trees=True),
        "model": DrafterKind(
            needs=Needs.MODEL,
            runs_in=(Location.DRAFT_SERVICE,),
            gives_trees=True,
            drafts_ahead=True,
            trained_as="draft",
        ),
        "eagle3": DrafterKind(
            needs=Needs.FEATURES,
            runs_in=(Location.TARGET, Location.DRAFT_SERVICE),
            gives_trees=True,
            drafts_ahead=True,
            feature_layers=default_feature_layers,
            trained_as="eagle3",
        ),
        "medusa": DrafterKind(
            needs=Needs.FEATURES,
            runs_in=(Location.TARGET, Location.DRAFT_SERVICE),
            gives_trees=True,
            feature_layers=lambda num_layers: (num_layers,),
            reads_text=False,
            trained_as="medusa",
        ),
        "early_exit": DrafterKind(
            needs=Needs.LAYERS,
            runs_in=(Location.TARGET,),
            gives_trees=True,
            trained_as="early_exit",
        ),
        "grammar": DrafterKind(needs=Needs.GRAMMAR, runs_in=(Location.TARGET,), gives_trees=False),
    }
)
"""Drafters by the names that the configuration, requests and reports use."""


def drafters_of(needs: Needs, location: Location) -> tuple[str, ...]:
    """The names of those that need this and run there."""
    return tuple(name for name, kind in DRAFTERS.items() if kind.needs is needs and location in kind.runs_in)


LOOKUPS = drafters_of(Needs.TEXT, Location.ORCHESTRATOR)
IN_TARGET_DRAFTERS = (*drafters_of(Needs.FEATURES, Location.TARGET), *drafters_of(Needs.LAYERS, Location.TARGET))
"""Drafters that live in the target, because they look into it."""

METHODS: Mapping[str, str] = MappingProxyType(
    {kind.trained_as: name for name, kind in DRAFTERS.items() if kind.trained_as}
)
"""Drafters by their names in `pilotfish train`."""


def room(name: str, module: str) -> Any:
    """A module of the drafter's room."""
    return import_module(f"pilotfish.drafters.{name}.{module}")
