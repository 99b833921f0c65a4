"""The tokenizer of an emulated model: one that is here, so that nothing has to be fetched.

Torch-free: the orchestrator reads it, too.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from pilotfish.config import Config
from pilotfish.errors import PilotfishError
from pilotfish.models.store.catalogue import resolve
from pilotfish.models.store.model_store import ModelCache
from pilotfish.models.store.pull import cached_folder
from pilotfish.models.tokens.tokenizer import Tokenizer

SPECIAL_TOKENS = ("<|end|>", "<|start|>")
_TEXT = (
    "a the of and to in it is was that with as for on at by from his her their one two some all no not but or so "
    "then sea ship fish pilot harbour lighthouse wave wind sail rope anchor deck captain sailor island shore tide "
    "storm rain sun moon star cloud sky night day morning evening water sand stone rock boat net gull whale shark "
    "coral pearl map compass north south east west deep blue green white grey dark bright cold warm old young small "
    "large slow fast quiet loud far near under over between behind before after swims turns follows leads waits "
    "looks finds keeps gives takes brings holds opens closes rises falls drifts dives sings calls tells knows "
    "remembers forgets"
)
WORDS = tuple(_TEXT.split())
"""What the emulated model says where it has the tokenizer made here."""
_MAX_CONTEXT_TOKENS = 1 << 20
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant: {% endif %}"
)


def emulated_tokenizer_folder(config: Config) -> Path:
    """The configured target's tokenizer if it is on this machine, else a tiny one made in the cache folder.

    Every process of a machine comes to the same one, and those of several machines to equal ones. Uses no network.
    """
    try:
        folder = cached_folder(resolve(config.target.model), ModelCache(Path(config.cache_dir).expanduser()))
        if folder is not None:
            Tokenizer.load(folder)
            return folder
    except PilotfishError:
        pass  # whatever is wrong with it, an emulation can do without
    return _made_here(Path(config.cache_dir).expanduser())


def spoken_tokens(tokenizer: Tokenizer) -> range:
    """Ids that an emulated model says: the longest stretch without special tokens, or the words made here."""
    if tokenizer.decode([_first_word()]) == f" {WORDS[0]}":
        return range(_first_word(), tokenizer.vocab_size)
    special = sorted(token_id for token_id in tokenizer.special_token_ids if token_id < tokenizer.vocab_size)
    bounds = [-1, *special, tokenizer.vocab_size]
    stretches = [range(low + 1, high) for low, high in itertools.pairwise(bounds)]
    return max(stretches, key=len)


def _first_word() -> int:
    return len(SPECIAL_TOKENS) + len(pre_tokenizers.ByteLevel.alphabet())


def _made_here(cache_dir: Path) -> Path:
    folder = cache_dir / "emulated-tokenizer"
    if (folder / "tokenizer_config.json").is_file():
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder)
    except OSError:  # a read-only home, say
        folder = Path(tempfile.mkdtemp(prefix="pilotfish-tokenizer-"))
        _write(folder)
    return folder


def _write(folder: Path) -> None:
    """Each file appears whole: another process may be doing the same."""
    tokens = [*SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(f"\u0120{word}" for word in WORDS)]
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIAL_TOKENS))
    config = {
        "model_type": "emulated",
        "vocab_size": len(vocab),
        "max_position_embeddings": _MAX_CONTEXT_TOKENS,
        "eos_token_id": 0,
    }
    contents = {
        "tokenizer.json": backend.to_str(),
        "config.json": json.dumps(config),
        # Last: where it is, the others are.
        "tokenizer_config.json": json.dumps({"chat_template": _CHAT_TEMPLATE, "eos_token": SPECIAL_TOKENS[0]}),
    }
    for name, content in contents.items():
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as file:
            file.write(content)
        Path(file.name).replace(folder / name)
