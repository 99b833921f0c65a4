"""Prompts from files, good and bad."""

import json
from pathlib import Path

import pytest

from pilotfish.bench.grading import is_right
from pilotfish.bench.prompts import OWN_PROMPTS, Prompt, load_prompts
from pilotfish.errors import ConfigError

LINE = '{"question_id": 1, "category": "qa", "turns": ["Who?", "And then?"], "reference": ["x"]}'


def written(folder: Path, text: str, name: str = "prompts.jsonl") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_spec_bench_gives_first_turns_category_by_category_in_turn(tmp_path: Path) -> None:
    lines = [LINE, LINE.replace("Who", "When"), LINE.replace("qa", "math").replace("Who", "How many"), ""]
    prompts = load_prompts(written(tmp_path, "\n".join(lines)))
    assert prompts == [Prompt("qa", "Who?", ("x",)), Prompt("math", "How many?", ("x",)), Prompt("qa", "When?", ("x",))]


def test_a_text_file_is_a_list(tmp_path: Path) -> None:
    path = written(tmp_path, "One.\n\n  Two.  \n", "list.txt")
    assert load_prompts(path) == [Prompt("text", "One."), Prompt("text", "Two.")]


def test_our_own_set_has_as_many_prompts_in_every_category() -> None:
    prompts = load_prompts()
    categories = {prompt.category for prompt in prompts}
    assert categories >= {"code", "chat", "creative writing", "factual questions", "translation"}
    assert len(prompts) == 3 * len(categories)
    assert len(set(prompts)) == len(prompts)
    assert len(load_prompts(OWN_PROMPTS, per_category=1)) == len(categories)
    assert all(is_right(prompt.references[0], prompt.references) for prompt in prompts if prompt.references)


@pytest.mark.parametrize(
    ("written_as", "references"),
    [
        ('"b"', ("b",)),
        ("7", ("7",)),
        ("2.5", ("2.5",)),
        ('["b", "c"]', ("b",)),
        ('[["b", "c"]]', ("b", "c")),
        ("[]", ()),
        ("null", ()),
        ('[""]', ("",)),
    ],
)
def test_references_are_the_data_sets_own(tmp_path: Path, written_as: str, references: tuple[str, ...]) -> None:
    (prompt,) = load_prompts(written(tmp_path, LINE.replace('["x"]', written_as)))
    assert prompt.references == references


def test_a_file_of_references_goes_first_question_by_question(tmp_path: Path) -> None:
    path = written(tmp_path, "\n".join([LINE, LINE.replace(": 1,", ": 2,"), LINE.replace(": 1,", ': "a",')]))
    answers = [{"question_id": 2, "reference": 7, "category": "qa"}, {"question_id": "a", "reference": ["b"]}]
    references = written(tmp_path, "\n".join(map(json.dumps, answers)), "references.jsonl")
    assert [prompt.references for prompt in load_prompts(path, references=references)] == [("x",), ("7",), ("b",)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [('{"reference": 1}', "line 1: .*question_id"), ('{"question_id": 9, "reference": 1}', "for none of the prompts")],
)
def test_references_that_are_of_no_use_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = written(tmp_path, LINE.replace('["x"]', "null"))
    with pytest.raises(ConfigError, match=reason):
        load_prompts(path, references=written(tmp_path, text, "references.jsonl"))


@pytest.mark.parametrize(
    ("second_line", "reason"),
    [
        ("{", "line 2"),
        ("[]", "line 2: Expected `object`"),
        ('{"turns": ["x"]}', "line 2: .*category"),
        ('{"category": "qa", "turns": []}', r"line 2: .*length >= 1.*turns"),
        ('{"category": "qa", "turns": [7]}', r"line 2: Expected `str`, got `int`"),
        ('{"category": "qa", "turns": ["  "]}', "line 2: the first turn is empty"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, second_line: str, reason: str) -> None:
    path = written(tmp_path, f"{LINE}\n{second_line}\n{LINE}")
    with pytest.raises(ConfigError, match=reason):
        load_prompts(path)


@pytest.mark.parametrize("name", ["empty.jsonl", "empty.txt"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} holds no prompts"):
        load_prompts(written(tmp_path, " \n\n", name))
