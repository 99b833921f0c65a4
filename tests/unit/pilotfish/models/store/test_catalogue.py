from pathlib import Path

import pytest

from pilotfish.errors import ModelNotFoundError
from pilotfish.models.store.catalogue import DEFAULT_MODEL, HubModel, LocalFolder, resolve


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
