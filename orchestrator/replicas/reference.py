"""The model that the targets of a pool must agree on."""

from __future__ import annotations

from pilotfish.errors import HandshakeError
from pilotfish.types import ModelInfo


class ModelReference:
    """What the first target serves, all others must. The handshake has compared the tokenizers before."""

    def __init__(self) -> None:
        self._first: ModelInfo | None = None

    def check(self, model: ModelInfo) -> None:
        """Raises HandshakeError for a target whose answers would not be those of the others."""
        if self._first is None:
            self._first = model
            return
        for name in ("model_id", "vocab_size", "max_context_tokens", "dtype"):
            expected, actual = getattr(self._first, name), getattr(model, name)
            if expected != actual:
                raise HandshakeError(
                    f"the replica has {name} {actual!r}, the pool's first target {expected!r}: "
                    "give all targets the same configuration, or restart the orchestrator after changing the model"
                )
