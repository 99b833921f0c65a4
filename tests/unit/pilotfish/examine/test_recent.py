"""Which texts of the ring are examined, and what is said where there are none."""

from pathlib import Path
from typing import Any

import pytest

from pilotfish.config import Config, config_from_dict
from pilotfish.errors import ConfigError
from pilotfish.examine.drafters import NamedDrafter
from pilotfish.examine.recent import read_recent
from pilotfish.features import Features
from pilotfish.learning.facts import VersionFacts
from pilotfish.learning.record import LearnedText
from pilotfish.learning.ring import open_ring
from pilotfish.learning.versions import Versions

NOW = 10_000.0
LEARNED, HELD_OUT = "f" * 16, "0" * 16
"""Digests of prompts: a fifth of all, from 0 on, is held out."""


def config_of(folder: Path, **learning: Any) -> Config:
    return config_from_dict({"draft": {"learning": {"enabled": True, "folder": str(folder), **learning}}})


def keep(config: Config, count: int = 1, **values: Any) -> None:
    """Texts of the tokens 100 to 109, of which the first four are the prompt."""
    for number in range(count):
        fields = {
            "request_id": f"request {number}",
            "kind": "aaaa",
            "prompt_len": 4,
            "token_ids": tuple(range(100, 110)),
            "features": Features(0, 10, bytes(20)),
            "finished_at": NOW - 50 + number,
            **values,
        }
        open_ring(config).append(LearnedText(**fields))


def test_texts_become_questions_with_answers_the_newest_first(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    keep(config, 8)
    keep(config, finished_at=NOW - 1, kind="bbbb", request_id="rare")
    recent = read_recent(config, None, NOW)
    assert [question.category for question in recent.questions] == ["other", *["aaaa"] * 8]
    assert {(question.token_ids, question.answer) for question in recent.questions} == {
        ((100, 101, 102, 103), (104, 105, 106, 107, 108, 109))
    }
    assert recent.drafters == []


def test_a_text_whose_prompt_is_not_kept_begins_with_its_first_token(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    keep(config, prompt_len=0)
    keep(config, request_id="short", prompt_len=9)  # one token follows: nothing can be drafted behind it
    (question,) = read_recent(config, None, NOW).questions
    assert (question.token_ids, len(question.answer)) == ((100,), 9)


def test_of_each_prompt_the_newest_counts_and_of_each_kind_so_many(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    keep(config, 5, prompt=LEARNED)
    keep(config, 5, kind="bbbb")
    recent = read_recent(config, 3, NOW)
    assert sorted(question.category for question in recent.questions) == ["bbbb"] * 3 + ["other"]


def test_what_is_too_old_is_not_looked_at(tmp_path: Path) -> None:
    """The trainer would have deleted it."""
    config = config_of(tmp_path, max_age_s=10)
    keep(config, finished_at=NOW - 11)
    with pytest.raises(ConfigError, match="holds no text of the last 10 s"):
        read_recent(config, None, NOW)


def test_a_version_is_examined_on_what_none_has_learned_from(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    keep(config, prompt=LEARNED)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "model.safetensors").write_bytes(b"weights")
    versions = Versions(tmp_path)
    number = versions.add(tmp_path / "new", VersionFacts(parent=0, created_at=0.0))
    versions.promote(number, "by hand")
    with pytest.raises(ConfigError, match="no held-out text that version 1 has not learned from"):
        read_recent(config, None, NOW)
    keep(config, prompt=HELD_OUT, request_id="held out", token_ids=tuple(range(10)))
    recent = read_recent(config, None, NOW)
    assert [question.token_ids for question in recent.questions] == [(0, 1, 2, 3)]
    assert recent.drafters == [NamedDrafter("eagle3", str(tmp_path / "versions" / "1"))]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "holds no text of the last 3600 s"),
        ({"draft": {"learning": {"enabled": False}}}, "draft.learning.enabled is false"),
        ({"target": {"drafter": {"proposer": "none"}}, "draft": {}}, "no EAGLE-3 head drafts"),
    ],
)
def test_why_there_is_nothing(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    sections = {"draft": {"learning": {"enabled": True}}, "cache_dir": str(tmp_path), **changes}
    with pytest.raises(ConfigError, match=message):
        read_recent(config_from_dict(sections), None, NOW)


def test_texts_that_cannot_be_read_are_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    keep(config_of(tmp_path, key_file=str(key)))
    with pytest.raises(ConfigError, match="that can be read"):
        read_recent(config_of(tmp_path), None, NOW)
    assert "draft.learning.key_file is not set" in caplog.text
    assert "request 0" not in caplog.text
