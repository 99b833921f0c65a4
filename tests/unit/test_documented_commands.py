"""What pages say to type and to write down is understood: commands, options and keys of the configuration exist."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer
import yaml

from pilotfish.cli.main import app
from pilotfish.config import Config, load_config

ROOT = Path(__file__).parents[2]
PAGES = sorted((*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("[be]*/**/README.md")))
CODE = re.compile(r"^ *```(?P<language>\w*)\n(?P<block>.*?)^ *```|`(?P<inline>[^`\n]+)`", re.MULTILINE | re.DOTALL)
PILOTFISH = typer.main.get_command(app)
SECTIONS = set(Config.__dataclass_fields__)
CHART_PAGES = ("kubernetes.md", "behind-a-gateway.md")
"""What these name are the chart's values."""


def code_of(page: Path, *languages: str) -> Iterator[str]:
    for match in CODE.finditer(page.read_text(encoding="utf-8")):
        if match["inline"]:
            yield match["inline"] * ("inline" in languages)
        elif match["language"] in languages:
            yield match["block"]


def commands_of(page: Path) -> Iterator[list[str]]:
    """As a shell splits them; an ellipsis stands for what a page leaves open."""
    for code in code_of(page, "", "bash", "sh", "inline"):
        for line in code.replace("\\\n", " ").splitlines():
            if not re.match(r"[$\s]*(pilotfish|python benchmarks/\w+\.py) +(?!/)", line) or "..." in line:
                continue
            for command in re.split(r"[;>|&]", re.sub(r"\$PWD/", "/", line)) if "'" not in line else [line]:
                words = shlex.split(command.strip(" $"), comments=True)
                if words and words[0] in ("pilotfish", "python"):
                    yield words


def understand(words: list[str]) -> None:
    """Raises click.UsageError for a command or an option that there is not, ConfigError for a setting."""
    command: Any = PILOTFISH
    context = click.Context(command, info_name=words.pop(0))
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        _, command, words = command.resolve_command(context, words)
        context = click.Context(command, info_name=command.name, parent=context)
    options, _, _ = command.make_parser(context).parse_args(list(words))
    load_config(overrides=options.get("overrides") or ())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_settings_exist(page: Path, tmp_path: Path) -> None:
    for words in commands_of(page):
        if words[0] == "pilotfish":
            understand(words)
            continue
        sources = "".join(path.read_text() for path in (ROOT / words[1], *(ROOT / "benchmarks/shared").glob("*.py")))
        assert not [word for word in words if word.startswith("--") and f'"{word}"' not in sources], words
    for block in code_of(page, "yaml"):
        if set(yaml.safe_load(block) or {"none"}) <= SECTIONS:
            (file := tmp_path / "page.yaml").write_text(block)
            load_config(file)
    for code in code_of(page, "inline"):
        if re.fullmatch(rf"({'|'.join(SECTIONS)})(\.(?!proto)[a-z_]+)+", code) and page.name not in CHART_PAGES:
            understand_key(code.split("."))


def understand_key(path: list[str]) -> None:
    section: Any = Config()
    for name in path:
        assert hasattr(section, name), ".".join(path)
        section = getattr(section, name)


def test_versions_agree() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((ROOT / "helm/pilotfish/Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == version
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()
