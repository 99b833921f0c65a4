"""What is known of vLLM before any draft: its model's vocabulary and tokenizer, and how much it takes as a draft."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pilotfish.errors import HandshakeError, ModelNotFoundError
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint
from pilotfish.types import ModelInfo

if TYPE_CHECKING:
    from vllm.config import VllmConfig


@dataclass(frozen=True, slots=True)
class TargetModel:
    """The target as vLLM has it."""

    name: str
    vocab_size: int
    """Width of the logits."""
    num_draft_tokens: int
    """The num_speculative_tokens of vLLM."""
    tokenizer: str
    """Folder or hub id."""
    tokenizer_revision: str | None

    @classmethod
    def of(cls, vllm_config: VllmConfig) -> TargetModel:
        model, speculation = vllm_config.model_config, vllm_config.speculative_config
        assert speculation is not None
        return cls(
            name=str(model.model),
            vocab_size=int(model.get_vocab_size()),
            num_draft_tokens=int(speculation.num_speculative_tokens),
            tokenizer=str(model.tokenizer or model.model),
            tokenizer_revision=model.tokenizer_revision,
        )

    def fingerprint(self, folder: str) -> str:
        """The fingerprint of its tokenizer. Reads a file of some megabytes.

        folder: where tokenizer.json is; empty: where vLLM has it from. Raises ModelError kinds.
        """
        return tokenizer_fingerprint(folder or self._folder())

    def check_drafter(self, drafter: ModelInfo) -> None:
        """Raises HandshakeError for a draft replica that is of no use here."""
        if drafter.feature_layers:
            raise HandshakeError(
                f"proposer {drafter.proposer} builds on the target's hidden states, and vLLM gives a proposer tokens "
                "only: run the draft pool with draft.proposer=suffix, ngram or model"
            )

    def _folder(self) -> Path:
        folder = Path(self.tokenizer)
        if folder.is_dir():
            return folder
        # By name: it is one of vLLM's packages, and none of the client's.
        hub = importlib.import_module("huggingface_hub")
        found = hub.try_to_load_from_cache(self.tokenizer, "tokenizer.json", revision=self.tokenizer_revision)
        if not isinstance(found, str):
            raise ModelNotFoundError(
                f"there is no tokenizer.json of {self.tokenizer} in the hub's cache: name a folder with it "
                "(tokenizer), or take any drafter (check_tokenizer: false)"
            )
        return Path(found).parent
