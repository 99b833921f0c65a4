"""The profiles that come with Pilotfish, and files of one's own."""

from pathlib import Path

import pytest
import yaml

from pilotfish.emulation.profiles import load_profile, profile_names, profile_to_yaml
from pilotfish.errors import ConfigError


@pytest.mark.parametrize("name", profile_names())
def test_each_is_named_as_its_file_and_survives_a_round_trip(name: str, tmp_path: Path) -> None:
    profile = load_profile(name)
    assert profile.name == name
    copy = tmp_path / "copy.yaml"
    copy.write_text(profile_to_yaml(profile))
    assert load_profile(str(copy)) == profile


def test_a100_70b_has_the_published_figures() -> None:
    profile = load_profile("a100-70b")
    assert [profile.target.step_s(1, 1 + k) for k in (0, 1, 8)] == pytest.approx([8e-3] * 3)
    assert profile.draft.step_s(1, 1) == pytest.approx(0.5e-3)
    # A long context shows, and so does a batch past the memory-bound regime.
    assert profile.target.step_s(1, 1, 100_000) == pytest.approx(10.5e-3)
    assert profile.target.step_s(64, 64 * 6) > 4 * profile.target.step_s(64, 64)


@pytest.mark.parametrize("name", ["a1000", "a" * 300, "/", ""])
def test_an_unknown_name_is_told_the_known_ones(name: str) -> None:
    with pytest.raises(ConfigError, match=r"a100-70b, .*h100-70b-tp4"):
        load_profile(name)


@pytest.mark.parametrize("text", ["][", "just words", "name: x", "name: x\nspeed: 3", "name: x\nname: y"])
def test_a_file_that_is_no_profile_says_what_is_wrong(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"broken\.yaml"):
        load_profile(str(path))


def test_a_file_from_before_drafters_loads(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    text = profile_to_yaml(load_profile("cpu"))
    path.write_text(text.replace("drafters: []\n", ""))
    assert "drafters" not in path.read_text()
    assert load_profile(str(path)) == load_profile("cpu")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("acceptance: [1.5]", "between 0 and 1"),
        ("acceptance: []", "one probability or more"),
        ("feature_bytes: 0", "is a head: feature_bytes must be above 0"),
        ("kind: model", "reads no features"),
        ("kind: oracle", "kind"),
        ("place: pool", "place"),
    ],
)
def test_a_wrong_drafter_says_what_is_wrong(wrong: str, message: str, tmp_path: Path) -> None:
    profile = yaml.safe_load(profile_to_yaml(load_profile("a100-70b")))
    profile["drafters"][0] |= yaml.safe_load(wrong)
    path = tmp_path / "broken.yaml"
    path.write_text(yaml.safe_dump(profile))
    with pytest.raises(ConfigError, match=message):
        load_profile(str(path))
