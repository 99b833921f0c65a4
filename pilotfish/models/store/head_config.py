"""What the config.json of any draft head says of its target. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.errors import ModelError, UnsupportedModelError


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

    def check_target(self, *, hidden_size: int, vocab_size: int, fingerprint: str, source: str) -> None:
        """Raise ModelError when the head was made for another target or tokenizer; source names the head."""
        other = f"{source} was trained for another target: its"
        if self.hidden_size != hidden_size:
            raise ModelError(f"{other} hidden size is {self.hidden_size}, the target's {hidden_size}")
        if self.vocab_size != vocab_size:
            raise ModelError(f"{other} vocabulary has {self.vocab_size} tokens, the target's {vocab_size}")
        if self.tokenizer_fingerprint and self.tokenizer_fingerprint != fingerprint:
            raise ModelError(f"{source} was trained with another tokenizer than the target's")
