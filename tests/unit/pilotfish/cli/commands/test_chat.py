"""`pilotfish chat` keeps a conversation."""

import json

from typer.testing import CliRunner

from pilotfish.cli.main import app


def chat(address: str, *lines: str):
    arguments = ["chat", "--address", address, "-n", "16", "-t", "0"]
    return CliRunner().invoke(app, arguments, input="".join(f"{line}\n" for line in lines))


def prompt_tokens(output: str) -> list[int]:
    """Of each turn, from its closing line: `7 of 20 prompt tokens from the cache`."""
    return [
        int(line.split(" prompt tokens")[0].split()[-1]) for line in output.splitlines() if " prompt tokens " in line
    ]


def test_each_turn_carries_the_ones_before(address: str) -> None:
    result = chat(address, "hello", "hello", "/quit")
    assert result.exit_code == 0, result.output
    first, second = prompt_tokens(result.stdout)
    assert second > 2 * first


def test_a_failed_turn_leaves_the_conversation_as_it_was(address: str) -> None:
    result = chat(address, "hello", "x" * 600, "hello", "/quit")
    assert result.exit_code == 0
    assert "error: " in result.stdout
    first, second = prompt_tokens(result.stdout)
    assert second > 2 * first
    assert second < 600


def test_programs_get_an_object_for_each_answer_and_nothing_else(address: str) -> None:
    arguments = ["chat", "--address", address, "-n", "16", "-t", "0", "--json"]
    result = CliRunner().invoke(app, arguments, input="hello\nhello\n/stats\n")
    assert result.exit_code == 0, result.output
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert first["text"]
    assert second["num_prompt_tokens"] > 2 * first["num_prompt_tokens"]
    assert "prompt tokens from the cache" in result.stderr
