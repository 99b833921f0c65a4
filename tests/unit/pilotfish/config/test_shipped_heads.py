"""Heads that come with Pilotfish are found by name, others by their path."""

from pathlib import Path

import pytest

from pilotfish.config import Config, config_from_dict, shipped_heads
from pilotfish.config.shipped_heads import head_folder
from pilotfish.errors import ConfigError, ModelNotFoundError


@pytest.fixture
def shipped_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "share" / "a-head"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    monkeypatch.setattr(shipped_heads, "_FOLDERS", (tmp_path / "checkout", tmp_path / "share"))
    return folder


def test_by_name(shipped_head: Path) -> None:
    assert head_folder("a-head") == shipped_head


def test_the_head_of_a_target_drafts_in_it_unless_another_drafter_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = tmp_path / "a-model-eagle3"
    head.mkdir()
    (head / "config.json").write_text("{}")
    monkeypatch.setattr(shipped_heads, "_FOLDERS", (tmp_path,))

    def drafter(**values: object) -> tuple[str, str, str]:
        config = config_from_dict({"target": {"model": "a-model"}, **values})
        return config.target.drafter.proposer, config.target.drafter.lookup, config.draft.drafter

    assert drafter() == ("eagle3", "suffix", "suffix")
    assert drafter(draft={"proposer": "model"}) == ("none", "none", "model")
    assert drafter(target={"model": "b-model"}) == ("none", "none", "suffix")
    assert drafter(target={"model": "a-model", "tensor_parallel_size": 2}) == ("eagle3", "suffix", "suffix")
    assert drafter(target={"model": "a-model", "drafter": {"proposer": "none"}}) == ("none", "none", "suffix")
    assert drafter(target={"model": "a-model", "drafter": {"lookup": "ngram"}})[:2] == ("eagle3", "ngram")
    assert drafter(target={"model": "a-model", "drafter": {"lookup": "none"}})[:2] == ("eagle3", "none")
    assert drafter(target={"model": str(tmp_path / "a-model")})[0] == "none", "a folder of the user's"
    with pytest.raises(ConfigError, match=r"target\.drafter\.model is given without target\.drafter\.proposer"):
        drafter(target={"model": "b-model", "drafter": {"model": "my-head"}})
    assert drafter(emulation={"profile": "instant"})[0] == "none"


def test_the_default_target_has_one() -> None:
    assert head_folder(Config().target.drafter.model).is_dir()


def test_by_path(shipped_head: Path) -> None:
    assert head_folder(str(shipped_head)) == shipped_head


def test_what_there_is_is_named(shipped_head: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"'b-head' is no folder of a draft head; .*: a-head"):
        head_folder("b-head")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelNotFoundError, match="is no folder of a draft head"):
        head_folder(str(tmp_path / "empty"))


def test_the_checkout_and_the_wheel_are_looked_in() -> None:
    repository = Path(__file__).resolve().parents[4]
    assert shipped_heads._FOLDERS[0] == repository / "models"
    assert shipped_heads._FOLDERS[1].parts[-3:] == ("share", "pilotfish", "models")


def _in_target(proposer: str, **target: str) -> str:
    return config_from_dict({"target": {"drafter": {"proposer": proposer}, **target}}).target.drafter.model


def _in_the_pool(proposer: str, **draft: str) -> str:
    return config_from_dict({"draft": {"proposer": proposer, **draft}}).draft.head


@pytest.mark.parametrize("proposer", ["eagle3", "medusa"])
@pytest.mark.parametrize(("chosen", "key"), [(_in_target, "target.drafter.model"), (_in_the_pool, "draft.head")])
def test_without_a_name_the_head_is_the_targets_own(tmp_path: Path, chosen, key: str, proposer: str) -> None:
    assert chosen(proposer) == f"smollm2-135m-instruct-{proposer}"
    with pytest.raises(ConfigError, match=rf"{key} is empty, and no head for .* comes with Pilotfish"):
        chosen(proposer, model=str(tmp_path))


def test_a_head_that_nobody_needs_is_not_looked_for(tmp_path: Path) -> None:
    assert _in_the_pool("suffix", model=str(tmp_path)) == ""
