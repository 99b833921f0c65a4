"""The model that every replica must agree with."""

from __future__ import annotations

from pilotfish.errors import HandshakeError
from pilotfish.types import ModelInfo


class ModelReference:
    """Checks replicas: all against the orchestrator's tokenizer, targets against the first target as well."""

    def __init__(self, tokenizer_fingerprint: str) -> None:
        self.tokenizer_fingerprint = tokenizer_fingerprint
        self._first_target: ModelInfo | None = None

    def check_target(self, model: ModelInfo) -> None:
        """Raises HandshakeError for a target whose answers would not be those of the others."""
        self._check_tokenizer(model)
        first = self._first_target
        if first is None:
            self._first_target = model
            return
        for name in ("model_id", "vocab_size", "max_context_tokens", "dtype"):
            mine, theirs = getattr(first, name), getattr(model, name)
            if mine != theirs:
                raise HandshakeError(
                    f"the replica has {name} {theirs!r}, the pool's first target {mine!r}; "
                    "give all targets the same configuration"
                )

    def check_draft(self, model: ModelInfo) -> None:
        """Raises HandshakeError for a drafter that speaks of other tokens."""
        self._check_tokenizer(model)

    def _check_tokenizer(self, model: ModelInfo) -> None:
        if model.tokenizer_fingerprint != self.tokenizer_fingerprint:
            raise HandshakeError(
                f"the replica's model {model.model_id} has the tokenizer {model.tokenizer_fingerprint[:12]}, "
                f"this orchestrator has {self.tokenizer_fingerprint[:12]}: they must be equal"
            )
