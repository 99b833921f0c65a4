"""`pilotfish generate` over real gRPC with emulated engines."""

import json
import socket

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


def test_json_holds_everything_and_adds_up(address: str) -> None:
    answer = as_json(address, "a fish", "-t", "0", "--speculation", "on")
    assert len(answer["token_ids"]) == len(answer["origins"]) == answer["num_output_tokens"] == 32
    assert answer["origins"].count("accepted") == answer["speculation"]["num_accepted_tokens"] > 0
    assert answer["origins"].count("plain") == answer["speculation"]["num_plain_tokens"]
    assert answer["finish_reason"] == "length"
    assert answer["emulated"] is True


@pytest.mark.parametrize("temperature", ["0", "0.9"])
def test_speculation_does_not_change_the_text(address: str, temperature: str) -> None:
    options = ("a fish", "-t", temperature, "--seed", "5")
    plain = as_json(address, *options, "--speculation", "off")
    assert plain["speculation"]["num_rounds"] == 0
    for how in (("-k", "3"), ("--proposer", "ngram")):
        assert as_json(address, *options, "--speculation", "on", *how)["token_ids"] == plain["token_ids"]


def test_the_reported_seed_reproduces_an_answer(address: str) -> None:
    first = as_json(address, "a fish", "-t", "1")
    again = as_json(address, "a fish", "-t", "1", "--seed", str(first["seed"]))
    assert again["token_ids"] == first["token_ids"]


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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a fish", "-t", "-1"], "temperature"),
        (["a fish", "--top-p", "0"], "top_p"),
        (["a fish", "-k", "1000"], "num_speculative_tokens"),
        (["a fish", "--proposer", "oracle"], "oracle"),
        (["", "--raw"], "empty"),
        (["a fish", "--raw", "--system", "Be brief."], "--system"),
    ],
)
def test_bad_input_is_one_clear_line(address: str, arguments: list[str], said: str) -> None:
    result = generate(address, *arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert said in result.stderr


def test_nobody_at_the_address_says_what_to_do() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        result = generate(f"127.0.0.1:{unused.getsockname()[1]}", "a fish")
    assert result.exit_code == 1
    assert "pilotfish up" in result.stderr


def test_a_deadline_is_an_error_not_a_hang(address: str) -> None:
    result = generate(address, "a fish", "--timeout", "0.001")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")


def test_a_prompt_that_is_no_text_is_refused_before_anything_is_dialled() -> None:
    with pytest.raises(InvalidRequestError, match="not text"):
        to_prompt("caf\udce9", system=None, raw=True)
