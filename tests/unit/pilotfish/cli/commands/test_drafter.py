"""`pilotfish drafter`: what is listed, and what a person may change."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from pilotfish.cli.main import app
from pilotfish.features import Features
from pilotfish.learning.facts import Score, VersionFacts
from pilotfish.learning.record import LearnedText, request_digest
from pilotfish.learning.ring import Ring
from pilotfish.learning.versions import Versions

runner = CliRunner()
SCORE = Score(num_texts=40, before=2.1, after=3.2, error=0.1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "learning"


def run(folder: Path, *arguments: str) -> Result:
    settings = ["--set", "draft.learning.enabled=true", "--set", f"draft.learning.folder={folder}"]
    return runner.invoke(app, ["drafter", *arguments, *settings], env={"COLUMNS": "250"})


def add(folder: Path, parent: int, *, learned_from: tuple[str, ...] = ()) -> int:
    head = folder / "new"
    head.mkdir(parents=True)
    (head / "model.safetensors").write_bytes(b"weights")
    facts = VersionFacts(
        parent=parent,
        created_at=1.8e9,
        num_texts=30,
        num_tokens=4096,
        train_s=12.0,
        verdict="2.10 to 3.20 tokens a round",
        score=SCORE,
        kinds={"ab12": SCORE},
        learned_from=tuple(map(request_digest, learned_from)),
    )
    return Versions(folder).add(head, facts)


def test_versions_are_listed_with_their_scores_and_how_they_came_to_serve(folder: Path) -> None:
    assert "0 (serves)" in run(folder, "list").stdout
    Versions(folder).promote(add(folder, 0), "better")
    listed = run(folder, "list").stdout
    for shown in ("1 (serves)", "4,096 tokens of 30 texts", "2.10 -> 3.20 +- 0.10 (40)", "ab12", "trainer", "better"):
        assert shown in listed
    told = json.loads(run(folder, "list", "--json").stdout)
    assert told["serving"] == 1
    assert told["versions"][0]["kinds"]["ab12"]["after"] == 3.2
    assert told["history"][0]["from"] == 0


def test_a_person_promotes_and_rolls_back(folder: Path) -> None:
    add(folder, 0)
    assert json.loads(run(folder, "promote", "1", "--json").stdout) == {"serving": 1}
    assert Versions(folder).serving() == 1
    assert Versions(folder).history()[-1].by_hand
    back = run(folder, "rollback")
    assert "Version 0 serves" in back.stderr
    again = run(folder, "rollback")
    assert again.exit_code == 1
    assert "the configured head serves" in again.stderr


def test_what_cannot_be_promoted_says_why(folder: Path) -> None:
    assert "there is no version 7: `pilotfish drafter list`" in run(folder, "promote", "7").stderr
    add(folder, 0)
    (folder / "versions" / "1" / "model.safetensors").write_bytes(b"torn")
    assert "is damaged" in run(folder, "promote", "1").stderr
    (folder / "versions" / "1" / "version.json").write_text("")
    assert "is damaged" in run(folder, "list").stdout
    assert Versions(folder).serving() == 0


def test_a_request_is_forgotten_and_versions_that_learned_from_it_are_named(folder: Path) -> None:
    ring = Ring(folder / "ring", max_bytes=10_000, max_age_s=60, key=bytes(32))
    ring.append(LearnedText("req-1", "ab12", 1, (1, 2), Features(0, 2, b"1234"), finished_at=1.8e9))
    for parent in (0, 1):
        add(folder, parent, learned_from=("req-1",) if parent else ())
    forgotten = run(folder, "forget", "req-1")
    assert "Deleted 1 texts of req-1" in forgotten.stderr
    assert "Versions that learned from it, by themselves or from the one before: 2." in forgotten.stderr
    assert "pilotfish drafter promote 1" in forgotten.stderr
    assert ring.paths() == []
    assert json.loads(run(folder, "forget", "req-2", "--json").stdout) == {"num_texts": 0, "versions": []}
    assert "x-request-id" in run(folder, "forget", "chatcmpl-4f6c").stderr


def test_versions_that_come_from_one_that_learned_from_a_request_are_named(folder: Path) -> None:
    versions = Versions(folder)
    for parent in range(4):
        versions.promote(add(folder, parent, learned_from=("req-1",) if parent == 0 else ()), "better")
    versions.keep(2)
    message = "from the one before: 3, 4. Version 0 did not: pilotfish drafter promote 0"
    assert message in run(folder, "forget", "req-1").stderr
    assert "Versions" not in run(folder, "forget", "req-2").stderr
    (folder / "versions" / "3" / "version.json").write_text("")  # nobody can tell what 4 comes from
    assert message in run(folder, "forget", "req-1").stderr


def test_without_a_head_that_learns_there_are_no_versions() -> None:
    result = runner.invoke(app, ["drafter", "list", "--set", "draft.proposer=suffix"])
    assert result.exit_code == 1
    assert "no EAGLE-3 head drafts by this configuration" in result.stderr
