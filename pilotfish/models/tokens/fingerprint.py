"""The tokenizer fingerprint: two services that agree on it mean the same by every token id. Torch-free."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.store.folder import read_json


def tokenizer_fingerprint(folder: Path | str) -> str:
    """SHA-256 (hexadecimal) of the folder's tokenizer: token ids, merges, added and special tokens.

    Formatting, padding, truncation, post-processing and chat templates do not enter.
    Raises: ModelNotFoundError without a tokenizer.json; UnsupportedModelError when it has another shape.
    """
    path = Path(folder) / "tokenizer.json"
    tokenizer = read_json(path)
    try:
        identity = _identity(tokenizer)
    except (KeyError, TypeError, AttributeError) as error:
        raise UnsupportedModelError(f"{path} is not a tokenizer.json: {error!r}") from error
    canonical = json.dumps(identity, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _identity(tokenizer: dict[str, Any]) -> dict[str, Any]:
    model = tokenizer["model"]
    added = tokenizer.get("added_tokens") or []
    # Writers differ in whether added tokens are repeated in the vocabulary: join the two.
    tokens = {(token_id, token) for token, token_id in _vocabulary(model["vocab"])}
    tokens |= {(token["id"], token["content"]) for token in added}
    return {
        "tokens": sorted(tokens),
        "merges": [_merge(merge) for merge in model.get("merges") or []],
        "added": sorted((token["id"], bool(token.get("special", False))) for token in added),
    }


def _vocabulary(vocab: dict[str, int] | list[list[Any]]) -> Iterable[tuple[str, int]]:
    """(token, id) pairs; a Unigram vocabulary is a list of [token, score] whose place is the id."""
    if isinstance(vocab, dict):
        return vocab.items()
    return ((entry[0], token_id) for token_id, entry in enumerate(vocab))


def _merge(merge: str | list[str]) -> list[str]:
    """A merge as its two parts; older files hold "left right", newer ones ["left", "right"]."""
    return merge.split(" ", 1) if isinstance(merge, str) else merge
