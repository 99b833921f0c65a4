"""A head for the tiny target."""

from pathlib import Path

import pytest
import torch

from pilotfish.drafters.eagle3.checkpoint import save_eagle3
from pilotfish.drafters.eagle3.module import Eagle3Head
from pilotfish.training.online import service
from tests.support.tiny_models import tiny_eagle3_config

HIDDEN, VOCAB = 24, 258
"""Of `target_folder`."""


@pytest.fixture(autouse=True)
def same_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the process that runs the tests."""
    monkeypatch.setattr(service, "yield_to_others", lambda: None)


@pytest.fixture
def learning(tmp_path: Path, target_folder: Path, head: Path) -> list[str]:
    """Settings with which the tiny target's head learns in a folder of its own."""
    return [
        f"target.model={target_folder}",
        "target.drafter.proposer=eagle3",
        f"target.drafter.model={head}",
        "draft.learning.enabled=true",
        f"draft.learning.folder={tmp_path / 'learning'}",
        f"cache_dir={tmp_path / 'cache'}",
    ]


@pytest.fixture(scope="session")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head that knows nothing, and can propose half of the words only."""
    torch.manual_seed(5)
    sizes = {"hidden_size": HIDDEN, "intermediate_size": 32, "num_attention_heads": 3, "num_key_value_heads": 1}
    config = tiny_eagle3_config(
        **sizes,
        head_dim=8,
        vocab_size=VOCAB,
        draft_vocab_size=60,
        max_position_embeddings=512,
        feature_layers=(2, 2, 1),
    )
    module = Eagle3Head(config)
    module.set_draft_vocabulary(torch.arange(60, 120))
    folder = tmp_path_factory.mktemp("head")
    save_eagle3(module, folder)
    return folder
