"""`pilotfish bench` against a running Pilotfish over emulated engines, and what it refuses."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pilotfish.chat import ChatMessage
from pilotfish.cli.main import app
from pilotfish.client.answer import Chunk, GenerateOptions, TokenPrompt
from pilotfish.client.inference import InferenceClient

FEW = ("--max-tokens", "12", "--per-category", "1", "-k", "2", "-k", "4")
"""Options of a short run."""
GREEDY = GenerateOptions(temperature=0, max_tokens=12)


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments])


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [{"category": name, "turns": [text]} for name, text in (("qa", "abcabcabc"), ("math", "12121212"))]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def test_json_holds_a_row_for_every_arm_and_category_and_a_verdict_for_each(address: str, prompts: Path) -> None:
    result = bench("--address", address, "--prompts", str(prompts), "--proposers", "draft,ngram", "--json", *FEW)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    arms = ["plain", "draft K=2", "draft K=4", "draft auto", "ngram K=2", "ngram K=4", "ngram auto"]
    assert [(row["arm"], row["category"]) for row in report["rows"]] == [
        (arm, category) for arm in arms for category in ("qa", "math", "all")
    ]
    assert {row["num_answers"] for row in report["rows"] if row["category"] == "qa"} == {1}
    assert all(row["num_identical"] == row["num_answers"] for row in report["rows"])
    drafts = {row["arm"]: row["drafts"] for row in report["rows"] if row["category"] == "all"}
    assert drafts["plain"]["num_draft_tokens"] == 0
    assert drafts["draft K=4"]["num_draft_tokens"] > drafts["draft K=4"]["num_accepted_tokens"] > 0
    assert [verdict["category"] for verdict in report["verdicts"]] == ["qa", "math", "all"]
    assert "EMULATED" in report["conditions"]["model"]


def test_tables_end_with_a_verdict_for_each_category(address: str, prompts: Path) -> None:
    arguments = ("--prompts", str(prompts), "--proposers", "draft", "--no-auto", *FEW)
    result = bench("--address", address, *arguments)
    assert result.exit_code == 0, result.output
    last = result.stdout.strip().splitlines()[-3:]
    assert [line.split(":")[0] for line in last] == ["qa", "math", "Over all categories"]
    assert "draft auto" not in result.stdout


def test_answers_are_graded_where_there_are_references(address: str, tmp_path: Path) -> None:
    """An emulated model says the same each time, so words that it said once are a reference."""
    path, references = tmp_path / "prompts.jsonl", tmp_path / "references.jsonl"
    lines = [{"question_id": number, "category": "qa", "turns": [f"question {number}"]} for number in range(3)]
    path.write_text("\n".join(map(json.dumps, lines)))
    with InferenceClient(address) as client:
        prompt = TokenPrompt(client.tokenize((ChatMessage("user", "question 0"),)))
        said = [each.text for each in client.generate(prompt, GREEDY, timeout_s=10) if isinstance(each, Chunk)]
    answers = [{"question_id": 0, "reference": "".join(said)[:12]}, {"question_id": 1, "reference": 1234567}]
    references.write_text("\n".join(map(json.dumps, answers)))
    few = ("--max-tokens", "12", "-k", "4", "--no-auto", "--proposers", "draft")
    arguments = ("--address", address, "--prompts", str(path), "--reference", str(references), *few)
    result = bench(*arguments, "--json")
    assert result.exit_code == 0, result.output
    for row in json.loads(result.stdout)["rows"]:
        accuracy = row["accuracy"]
        assert (accuracy["num_questions"], accuracy["right"], accuracy["difference"]) == (2, 0.5, 0)
    table = bench(*arguments).stdout
    assert "50% +-50" in table
    assert "right" in table


def test_every_arm_has_its_figures_and_a_verdict(address: str, prompts: Path) -> None:
    arguments = ("--prompts", str(prompts), "--proposers", "draft", "--acceptance", "typical", *FEW)
    result = bench("--address", address, *arguments)
    assert result.exit_code == 0, result.output
    for name in ("accepted", "rejected", "total", "TTFT", "verdict", "a step"):
        assert name in result.stdout
    lines = result.stdout.partition("every arm")[2].splitlines()
    for arm in ("draft K=2", "draft K=4", "draft auto", "draft K=4 typical"):
        (line,) = [line for line in lines if line.startswith(f"{arm} ") and "typical" not in line.removeprefix(arm)]
        assert not line.rstrip().endswith("-")
    assert all(len(line) <= 80 for line in lines[:8])


def test_lossy_arms_stand_beside_the_exact_ones_and_are_not_chosen(address: str, prompts: Path) -> None:
    arguments = ("--acceptance", "typical,tolerance", "--level", "step", "--step-threshold", "0", "--ignore-eos")
    few = ("--max-tokens", "40", "--per-category", "1", "-k", "4", "--no-auto", "--proposers", "draft", "--json")
    result = bench("--address", address, "--prompts", str(prompts), *arguments, *few)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    rows = {row["arm"]: row for row in report["rows"] if row["category"] == "all"}
    assert list(rows) == ["plain", "draft K=4", "draft K=4 typical", "draft K=4 tolerance", "draft K=4 step"]
    assert rows["draft K=4"]["num_identical"] == 2
    assert rows["draft K=4 step"]["num_identical"] < 2
    assert {verdict["arm"] for verdict in report["verdicts"]} == {"draft K=4"}
    assert [verdict["arm"] for verdict in report["arm_verdicts"]] == list(rows)[1:]
    assert report["qualities"] == {}  # an emulated target does not tell


def test_a_prompt_longer_than_the_context_is_named(address: str, tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("short\n" + "long " * 200)
    result = bench("--address", address, "--prompts", str(path))
    assert result.exit_code == 1
    message = " ".join(result.stderr.split())
    assert "the prompt 'long long" in message
    assert "takes 512" in message
