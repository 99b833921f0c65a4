"""A verified text to learn from, and the kind of requests that it belongs to."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import msgspec

from pilotfish.features import Features

_DIGEST_SIZE = 16**16
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
    """Features of the positions of token_ids, int8 or bfloat16 as they travelled."""
    finished_at: float = 0.0
    """Unix time in seconds."""
    prompt: str = ""
    """Digest of the whole prompt, the same for all who ask the same; empty: nobody else does."""

    @property
    def prompt_or_request(self) -> str:
        """What texts of one prompt have in common, a digest."""
        return self.prompt or request_digest(self.request_id)


def is_held_out(text: LearnedText, share: float) -> bool:
    """Whether it is only judged by. share: of all prompts, so that an answer to one that was learned from judges
    nothing."""
    return int(text.prompt_or_request, 16) < share * _DIGEST_SIZE


def kind_of(prompt: Sequence[int]) -> str:
    """Name of the prompt's kind: equal for prompts that begin alike. It says nothing else of them."""
    return _digest(prompt[:KIND_TOKENS])[:8]


def prompt_digest(prompt: Sequence[int]) -> str:
    """Digest of the prompt: equal for equal prompts alone."""
    return _digest(prompt)[:16]


def request_digest(request_id: str) -> str:
    """What files are named by, so that a request is found without reading them."""
    return hashlib.sha256(request_id.encode()).hexdigest()[:16]


def _digest(token_ids: Sequence[int]) -> str:
    return hashlib.sha256(struct.pack(f"<{len(token_ids)}q", *token_ids)).hexdigest()
