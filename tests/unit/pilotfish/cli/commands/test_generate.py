"""`pilotfish generate` over real gRPC with emulated engines."""

import json

import pytest
from typer.testing import CliRunner

from pilotfish.cli.commands.generate import to_prompt
from pilotfish.cli.main import app
from pilotfish.errors import InvalidRequestError

runner = CliRunner()


def generate(address: str, *arguments: str, stdin: str | None = None):
    return runner.invoke(app, ["generate", "--address", address, "-n", "32", *arguments], input=stdin)


def as_json(address: str, *arguments: str) -> dict:
    result = generate(address, "--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_answer_goes_to_stdout_and_the_statistics_to_stderr(address: str) -> None:
    expected = as_json(address, "a fish", "-t", "0")
    result = generate(address, "a fish", "-t", "0", "--speculation", "on")
    assert result.exit_code == 0
    assert result.stdout == expected["text"] + "\n"
    assert "drafts accepted" in result.stderr
    assert "emulated (emulated hardware)" in result.stderr


def test_steps_are_told(address: str) -> None:
    arguments = ("a fish", "-t", "0", "--level", "step", "--step-threshold", "0")
    answer = as_json(address, *arguments)
    assert answer["lossy"]
    assert answer["speculation"]["num_accepted_steps"] >= 1
    assert "steps accepted" in generate(address, *arguments).stderr


def test_a_prompt_comes_from_stdin(address: str) -> None:
    result = generate(address, "-", "-t", "0", "--raw", stdin="a fish")
    assert result.exit_code == 0
    assert result.stdout == as_json(address, "a fish", "-t", "0", "--raw")["text"] + "\n"


def test_raw_system_and_chat_prompts_differ(address: str) -> None:
    sizes = [
        as_json(address, "a fish", *options)["num_prompt_tokens"]
        for options in (["--raw"], [], ["--system", "Be brief."])
    ]
    assert sizes[0] == len("a fish")
    assert sizes == sorted(set(sizes))


def test_stop_ends_before_its_text(address: str) -> None:
    text = as_json(address, "a fish", "-t", "0")["text"]
    stop = text[10:13]
    answer = as_json(address, "a fish", "-t", "0", "--stop", stop)
    assert answer["text"] == text[: text.index(stop)]
    assert (answer["finish_reason"], answer["stopped_by"]) == ("stop", stop)


def test_a_prompt_that_is_no_text_is_refused_before_anything_is_dialled() -> None:
    with pytest.raises(InvalidRequestError, match="not text"):
        to_prompt("caf\udce9", system=None, raw=True)
