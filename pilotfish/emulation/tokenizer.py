"""The tokenizer of an emulated model: one that is here, so that nothing has to be fetched.

Torch-free: the orchestrator reads it, too.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from pilotfish.config import Config
from pilotfish.errors import PilotfishError
from pilotfish.models.store.catalogue import resolve
from pilotfish.models.store.model_store import ModelCache
from pilotfish.models.store.pull import cached_folder
from pilotfish.models.tokens.tokenizer import Tokenizer

WORDS = Path(__file__).parent / "words"
"""A tokenizer of two special tokens, 256 bytes and some words."""
FIRST_WORD = 2 + 256


def emulated_tokenizer_folder(config: Config) -> Path:
    """The configured target's tokenizer if it is on this machine, else WORDS. Uses no network."""
    try:
        folder = cached_folder(resolve(config.target.model), ModelCache(Path(config.cache_dir).expanduser()))
        if folder is not None:
            Tokenizer.load(folder)
            return folder
    except PilotfishError:
        pass  # whatever is wrong with it, an emulation can do without
    return WORDS


def spoken_tokens(tokenizer: Tokenizer) -> range:
    """Ids that an emulated model says: the longest stretch without special tokens; of WORDS, the words."""
    if tokenizer.folder == WORDS:
        return range(FIRST_WORD, tokenizer.vocab_size)
    special = sorted(token_id for token_id in tokenizer.special_token_ids if token_id < tokenizer.vocab_size)
    bounds = [-1, *special, tokenizer.vocab_size]
    stretches = [range(low + 1, high) for low, high in itertools.pairwise(bounds)]
    return max(stretches, key=len)
