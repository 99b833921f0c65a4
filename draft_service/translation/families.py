"""Families of targets that one draft pool serves: those of one tokenizer each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from draft_service.translation.vocabularies import Vocabularies
from pilotfish.config import Config
from pilotfish.models.store.pull import tokenizer_folder
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.types import ModelInfo


@dataclass(frozen=True)
class Family:
    """Targets of one tokenizer."""

    model: ModelInfo
    """The drafter, as they see it."""
    vocabularies: Vocabularies | None = None
    """How their tokens are translated; None: they have the drafter's own tokenizer."""

    @classmethod
    def translated(cls, drafter: ModelInfo, vocabularies: Vocabularies) -> Family:
        """drafter: as it sees itself."""
        target = vocabularies.target
        model = msgspec.structs.replace(
            drafter,
            tokenizer_fingerprint=target.fingerprint,
            vocab_size=target.vocab_size,
            # Its own is in tokens of its own: see TranslatingEngine.
            max_context_tokens=target.max_context_tokens,
            tokenizer_path=str(target.folder),
        )
        return cls(model, vocabularies)


def families_of(drafter: ModelInfo, config: Config) -> Iterator[Family]:
    """The family of target.model first, then those of draft.targets; the drafter's own last, where it is not among
    them.

    Raises ModelError kinds for a tokenizer that cannot be had.
    """
    known = set[str]()
    for name, model in enumerate((config.target.model, *config.draft.targets), start=1):
        folder = tokenizer_folder(model, config.cache_dir)
        fingerprint = tokenizer_fingerprint(folder)
        if fingerprint in known:
            continue
        known.add(fingerprint)
        if fingerprint == drafter.tokenizer_fingerprint:
            yield Family(drafter)
        else:
            pair = Vocabularies(Tokenizer.load(folder), Tokenizer.load(drafter.tokenizer_path), name)
            yield Family.translated(drafter, pair)
    if drafter.tokenizer_fingerprint not in known:
        yield Family(drafter)
