"""What the config.json of any draft head says of its target. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.errors import ModelError, UnsupportedModelError
from pilotfish.models.store.folder import read_metadata, text_fields
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint

if TYPE_CHECKING:
    from pilotfish.models.loading import LoadedModel


@dataclass(frozen=True, kw_only=True)
class HeadTarget:
    """What a head has to fit of its target."""

    hidden_size: int
    num_layers: int
    vocab_size: int
    fingerprint: str
    """The tokenizer's."""

    @classmethod
    def of_model(cls, loaded: LoadedModel) -> HeadTarget:
        config = loaded.model.config.get_text_config()
        return cls(
            hidden_size=int(config.hidden_size),
            num_layers=int(config.num_hidden_layers),
            vocab_size=loaded.vocab_size,
            fingerprint=loaded.fingerprint,
        )

    @classmethod
    def of_folder(cls, folder: Path) -> HeadTarget:
        """A target that is served elsewhere, by its model folder. Raises: ModelError kinds."""
        metadata = read_metadata(folder)
        config = text_fields(metadata.config)
        hidden_size, num_layers = config.get("hidden_size"), config.get("num_hidden_layers")
        if not isinstance(hidden_size, int) or not isinstance(num_layers, int):
            raise UnsupportedModelError(f"{folder / 'config.json'} lacks num_hidden_layers or hidden_size")
        return cls(
            hidden_size=hidden_size,
            num_layers=num_layers,
            vocab_size=metadata.vocab_size,
            fingerprint=tokenizer_fingerprint(folder),
        )


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """Sizes of a head, and the target it belongs to."""

    hidden_size: int
    """The target's hidden size, H."""
    vocab_size: int
    """The target's vocabulary, V."""
    draft_vocab_size: int
    """Tokens that the head can propose, Vd."""
    target_model: str = ""
    """Model id of the target; empty in heads from elsewhere."""
    tokenizer_fingerprint: str = ""
    """Fingerprint of the target's tokenizer; empty in heads from elsewhere."""

    def __post_init__(self) -> None:
        if not 1 <= self.draft_vocab_size <= self.vocab_size:
            raise UnsupportedModelError(
                f"a draft vocabulary of {self.draft_vocab_size} tokens does not fit a vocabulary of {self.vocab_size}"
            )

    def check_target(self, target: HeadTarget, *, source: str) -> None:
        """Raise ModelError when the head was made for another target or tokenizer; source names the head."""
        other = f"{source} was trained for another target: its"
        if self.hidden_size != target.hidden_size:
            raise ModelError(f"{other} hidden size is {self.hidden_size}, the target's {target.hidden_size}")
        if self.vocab_size != target.vocab_size:
            raise ModelError(f"{other} vocabulary has {self.vocab_size} tokens, the target's {target.vocab_size}")
        if self.tokenizer_fingerprint and self.tokenizer_fingerprint != target.fingerprint:
            raise ModelError(f"{source} was trained with another tokenizer than the target's")
