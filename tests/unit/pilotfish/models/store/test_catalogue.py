from pathlib import Path

import pytest

from pilotfish.errors import ModelNotFoundError
from pilotfish.models.store.catalogue import (
    DEFAULT_MODEL,
    GgufFile,
    HubModel,
    LocalFolder,
    is_local,
    model_id,
    resolve,
)


def test_catalogue_name() -> None:
    assert resolve("smollm2-135m-instruct") is DEFAULT_MODEL


def test_local_folder(model_folder: Path) -> None:
    assert resolve(str(model_folder)) == LocalFolder(model_folder)


def test_local_folder_wins_over_hub_id(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model_folder.parent.parent)
    assert resolve(f"{model_folder.parent.name}/{model_folder.name}") == LocalFolder(model_folder)


def test_hub_id() -> None:
    assert resolve("Qwen/Qwen3-0.6B") == HubModel("Qwen/Qwen3-0.6B")
    assert resolve("org/name@refs/pr/1") == HubModel("org/name@refs/pr/1")


@pytest.mark.parametrize("name", ["", "nothing", "a/b/c", "../x", "org/", "/no/such/folder", "org/na me"])
def test_unknown_names_list_what_there_is(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="smollm2-135m-instruct"):
        resolve(name)


def test_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"config\.json"):
        resolve(str(tmp_path))


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    file = tmp_path / "Tiny-Q4_K_M.gguf"
    file.write_bytes(b"GGUF")
    return file


def test_a_gguf_file_and_a_folder_that_holds_only_one(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve(str(gguf)) == resolve(str(gguf.parent)) == GgufFile(gguf)
    assert model_id(resolve(str(gguf))) == "Tiny-Q4_K_M"
    monkeypatch.chdir(gguf.parent)
    assert resolve(gguf.name) == GgufFile(gguf)
    assert is_local(gguf.name)


def test_a_gguf_file_that_has_changed_is_another_model_in_the_cache(gguf: Path) -> None:
    before = GgufFile(gguf).name
    assert before.startswith("Tiny-Q4_K_M-")
    gguf.write_bytes(b"GGUF2")
    assert GgufFile(gguf).name != before


def test_gguf_files_that_are_missing_too_many_or_parts_are_told_apart(gguf: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"there is no file .*none\.gguf"):
        resolve(str(gguf.with_name("none.gguf")))
    other = gguf.with_name("b.gguf")
    other.write_bytes(b"GGUF")
    with pytest.raises(ModelNotFoundError, match=r"several models, name one: Tiny-Q4_K_M\.gguf, b\.gguf"):
        resolve(str(gguf.parent))
    part = gguf.with_name("big-00001-of-00002.gguf")
    part.write_bytes(b"GGUF")
    with pytest.raises(ModelNotFoundError, match="join the parts"):
        resolve(str(part))
