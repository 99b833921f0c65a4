"""docs/tutorial.md: every command runs, and prints what the page says. Clients that other pages show run, too."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, SkipParser

pytestmark = pytest.mark.model

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "tutorial.md"
START = "pilotfish serve"
ADDRESS, HTTP_ADDRESS = "127.0.0.1:50051", "127.0.0.1:8000"
"""As the page has them: the defaults."""


class Reader:
    """Does what the page says, with services that listen elsewhere."""

    def __init__(self, up, folder: Path) -> None:
        self._up = up
        self._folder = folder
        self._addresses = {
            ADDRESS: up.address,
            HTTP_ADDRESS: up.wait_for(r"http://(?P<address>127\.0\.0\.1:\d+)")["address"],
        }
        self.printed: list[str] = []
        self.num_run = 0
        self.num_compared = 0

    def run_shell(self, example: Example) -> None:
        text = str(example.parsed)
        if text.strip() == START:
            self.printed = list(self._up.lines)
            return
        # Where the client is told no address it takes the default.
        self._run(["bash", "-euo", "pipefail", "-c", re.sub(r"(pilotfish generate)", rf"\1 --address {ADDRESS}", text)])

    def run_python(self, example: Example) -> None:
        self._run([sys.executable, "-W", "error", "-c", str(example.parsed)])

    def compare(self, example: Example) -> None:
        """Each line stands among those that were printed, in this order."""
        printed = iter(self.printed)
        for line in str(example.parsed).rstrip("\n").splitlines():
            assert any(pattern_of(line).fullmatch(each.rstrip()) for each in printed), (
                f"line {example.line} of {PAGE.name}: no line like {line!r} in\n" + "\n".join(self.printed)
            )
        self.num_compared += 1

    def _run(self, command: list[str]) -> None:
        for default, actual in self._addresses.items():
            command = [part.replace(default, actual) for part in command]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "COLUMNS": "120", "NO_COLOR": "1"}
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{command[-1]}\nended with {done.returncode}:\n{done.stdout}"
        self.printed = done.stdout.splitlines()
        self.num_run += 1


def pattern_of(line: str) -> re.Pattern[str]:
    """Of lines that say the same: any figure stands for a figure, `...` for anything."""
    parts = (re.sub(r"\d+", r"\\d+", re.escape(part)) for part in re.split(r" *\.{3} *", line))
    return re.compile(re.sub(r"(\\ )+", r"\\s+", ".*".join(parts)))


def test_every_command_runs_and_prints_what_the_page_says(up, tmp_path: Path) -> None:
    reader = Reader(up, tmp_path)
    parsers = (
        SkipParser(),
        CodeBlockParser("bash", reader.run_shell),
        CodeBlockParser("python", reader.run_python),
        CodeBlockParser("text", reader.compare),
    )
    for example in Sybil(parsers).parse(PAGE).examples():
        example.evaluate()
    fences = re.findall(r"^```(\w+)$", PAGE.read_text(), re.MULTILINE)
    assert set(fences) == {"bash", "python", "text"}
    assert reader.num_compared == fences.count("text")
    # One is not run, and one runs already.
    assert reader.num_run == len(fences) - reader.num_compared - 2


@pytest.mark.parametrize("page", ["README.md", "docs/openai-api.md"])
def test_clients_of_other_pages_get_an_answer(page: str, up, tmp_path: Path) -> None:
    reader = Reader(up, tmp_path)
    parsers = (CodeBlockParser("bash", reader.run_shell), CodeBlockParser("python", reader.run_python))
    for example in Sybil(parsers).parse(ROOT / page).examples():
        example.evaluate()
        assert reader.printed
    assert reader.num_run == 2


@pytest.mark.parametrize(
    ("line", "printed", "is_alike"),
    [
        ("first token      21 ms", "first token  7 ms", True),
        ("ended by         length", "ended by         stop", False),
        ("rounds: 0 and 12", "rounds: 3 and 4", True),
        ('{"name": "...", "ok": ...}', '{"name": "cod", "ok": true}', True),
        ('{"name": "...", "ok": ...}', '{"name": "cod"}', False),
        ("(a.b)", "(a,b)", False),
    ],
)
def test_lines_that_say_the_same(line: str, printed: str, is_alike: bool) -> None:
    assert bool(pattern_of(line).fullmatch(printed)) == is_alike
