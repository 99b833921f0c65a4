"""The kernels' threads without a decoder: for a head that lives apart from its target."""

from __future__ import annotations

import ctypes
import weakref
from pathlib import Path

from pilotfish.models.native.build import find_kernels, load_kernels
from pilotfish.models.native.layout import ModelStruct


class NativeThreads:
    """Lends a head its threads, as a decoder does; the head has to bring its embeddings."""

    def __init__(self, *, num_threads: int, max_context_tokens: int, cache_dir: Path) -> None:
        """Raises NativeKernelsUnavailableError."""
        self.kernels = load_kernels(find_kernels(cache_dir))
        self.max_context_tokens = max_context_tokens
        no_layers = ModelStruct()
        self.engine = self.kernels.pilotfish_create(ctypes.addressof(no_layers), num_threads)  # copies the struct
        weakref.finalize(self, self.kernels.pilotfish_destroy, self.engine)
