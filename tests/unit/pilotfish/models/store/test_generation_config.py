import json
from pathlib import Path

import pytest

from pilotfish.errors import UnsupportedModelError
from pilotfish.models.store.generation_config import sampling_defaults


def write(folder: Path, **values: object) -> None:
    (folder / "generation_config.json").write_text(json.dumps(values))


def test_what_a_model_says_of_sampling(tmp_path: Path) -> None:
    """Qwen 3's file."""
    write(tmp_path, do_sample=True, eos_token_id=[2, 0], temperature=0.6, top_k=20, top_p=0.95, min_p=None)
    assert sampling_defaults(tmp_path) == {"temperature": 0.6, "top_k": 20, "top_p": 0.95}


def test_a_model_that_says_nothing(tmp_path: Path) -> None:
    assert sampling_defaults(tmp_path) == {}
    write(tmp_path, eos_token_id=2)
    assert sampling_defaults(tmp_path) == {}


def test_all_tokens_under_either_name(tmp_path: Path) -> None:
    write(tmp_path, top_k=-1)
    assert sampling_defaults(tmp_path) == {"top_k": 0}


@pytest.mark.parametrize("values", [{"temperature": -1}, {"top_p": 0}, {"top_k": 0.5}, {"min_p": "0.1"}])
def test_what_no_request_could_have(tmp_path: Path, values: dict[str, object]) -> None:
    write(tmp_path, **values)
    name = next(iter(values))
    with pytest.raises(UnsupportedModelError, match=f"{name} is .*orchestrator.generation_config to none"):
        sampling_defaults(tmp_path)
