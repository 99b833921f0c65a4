"""What tests of rooms share with those of the engine, of models and of training."""

from tests.unit.pilotfish.engine.conftest import (
    drafts_are_free,
    eagle3_module,
    greedy_text,
    make_core,
    medusa_heads,
    tiny_llama,
)
from tests.unit.pilotfish.models.conftest import kernel_cache, write_tiny_model
from tests.unit.pilotfish.training.conftest import computed, target_folder, tiny_target

__all__ = [
    "computed",
    "drafts_are_free",
    "eagle3_module",
    "greedy_text",
    "kernel_cache",
    "make_core",
    "medusa_heads",
    "target_folder",
    "tiny_llama",
    "tiny_target",
    "write_tiny_model",
]
