"""Which decoder computes a model, and why no faster one."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.own_cache.text_cache import Rows


@dataclass(frozen=True)
class ServingPath:
    """The decoder that computes a model as transformers does."""

    own_cache_rows: Rows | None = None
    """None: our attention on the paged KV cache, which batches sequences. Else transformers' own attention and cache,
    one sequence a forward, so many rows at a time."""
    reason: str = ""
    """Why it is not the paged one."""

    @property
    def is_paged(self) -> bool:
        return self.own_cache_rows is None

    def require_paged(self, wanted: str) -> None:
        """Raise UnsupportedModelError where the model is computed otherwise. wanted: what needs the paged KV cache."""
        if not self.is_paged:
            raise UnsupportedModelError(f"{wanted} needs a model on the paged KV cache; this one is served {self}")

    def __str__(self) -> str:
        """For people, without a capital."""
        if self.is_paged:
            return "on the paged KV cache"
        rows = ", a token at a time, so that drafts do not pay" if self.own_cache_rows is Rows.SINGLE else ""
        return f"with transformers' own cache, one sequence a forward{rows}: {self.reason}"
