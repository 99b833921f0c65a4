"""A verified text to learn from, and the kind of requests that it belongs to."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import msgspec

from pilotfish.features import Features

KIND_TOKENS = 16
"""Tokens at the beginning of a prompt that say what kind of request it is: a chat template with a system prompt's first
words."""


class LearnedText(msgspec.Struct, frozen=True):
    """Verified tokens of one sequence, contiguous, with the target's features of their positions."""

    request_id: str
    kind: str
    """See kind_of."""
    prompt_len: int
    """Tokens of the prompt among token_ids; 0: all were generated."""
    token_ids: tuple[int, ...]
    features: Features
    """Of the positions of token_ids, int8 or bfloat16 as they travelled."""
    drafter_version: int
    """The one that drafted for the text last."""
    num_rounds: int = 0
    """Rounds in which it drafted."""
    num_accepted_tokens: int = 0
    """Draft tokens of those rounds that were accepted."""
    finished_at: float = 0.0
    """Unix time in seconds."""
    prompt: str = ""
    """Digest of the whole prompt, the same for all who ask the same; empty: nobody else does."""


def kind_of(prompt: Sequence[int]) -> str:
    """The same for prompts that begin alike, and telling nothing else of them."""
    return _digest(prompt[:KIND_TOKENS])[:8]


def prompt_digest(prompt: Sequence[int]) -> str:
    """The same for equal prompts alone."""
    return _digest(prompt)[:16]


def request_digest(request_id: str) -> str:
    """What files are named by, so that a request is found without reading them."""
    return hashlib.sha256(request_id.encode()).hexdigest()[:16]


def _digest(token_ids: Sequence[int]) -> str:
    return hashlib.sha256(struct.pack(f"<{len(token_ids)}q", *token_ids)).hexdigest()
