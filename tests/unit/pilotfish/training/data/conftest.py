import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotfish.models.tokens.tokenizer import Tokenizer


@pytest.fixture
def tokenizer(target_folder: Path) -> Tokenizer:
    return Tokenizer.load(target_folder)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes lines, as they are or as JSON."""

    def write_lines(*lines: object) -> Path:
        path = tmp_path / "data.jsonl"
        path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
        return path

    return write_lines
