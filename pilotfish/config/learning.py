"""Configuration of a drafter that learns from the traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from pilotfish.config.fields import STRICT, Share
from pilotfish.config.paths import PathText


@dataclass(frozen=True, kw_only=True)
class LearningConfig:
    """An EAGLE-3 head that learns from verified text. See [learning](learning.md)."""

    __pydantic_config__ = STRICT

    enabled: bool = False
    """Keep verified text of requests that allow it, and train the head that drafts on it (`pilotfish service trainer`).
    For proposer `eagle3`."""
    folder: PathText = ""
    """Folder that engines and the trainer share. Empty: in the cache, by target and head."""
    max_bytes: PositiveInt = 256_000_000
    """Maximum size of the texts that are kept; the oldest are deleted first."""
    max_age_s: PositiveFloat = 3600.0
    """Maximum age of a text."""
    key_file: PathText = ""
    """File with 32 random bytes, raw or in base64, that texts are encrypted with. Empty: they are not."""
    salted: bool = False
    """Learn from requests with a `cache_salt` as well."""
    data: PathText = ""
    """Folder of features that `pilotfish train` has kept of the head's own data; mixed in. Empty: none."""
    data_share: Share = 0.5
    """Share of `data` among the tokens of a candidate's training."""
    min_tokens: PositiveInt = 8192
    """Answer tokens that a candidate is trained on; so many must be new."""
    max_minutes: PositiveFloat = 3.0
    """Maximum time of a candidate's training."""
    learning_rate: PositiveFloat = 5e-4
    """Peak of a candidate's learning rate."""
    held_out_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of prompts whose texts are only judged by."""
    keep_versions: PositiveInt = 5
    """Versions that are kept."""
    num_threads: NonNegativeInt = 1
    """Threads of the trainer. 0: as many as it has cores."""
    device: str = "cpu"
    """Device of the trainer, as engine.device."""
