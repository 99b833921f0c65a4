"""Benchmarks, scripts and examples: what no test starts still finds the modules of this repository that it imports."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("pilotfish", "draft_service", "target_service", "orchestrator", "tests")
FOLDERS = ("benchmarks", "scripts", "examples")


def imported_modules(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def is_there(module: str, folder: Path) -> bool:
    path = folder.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def missing_modules(source: str, folder: Path) -> list[str]:
    """Modules of ours, and of packages beside the script in `folder`, that have no file."""
    return [
        module
        for module in imported_modules(source)
        if (top := module.split(".")[0]) in OURS or (folder / top).is_dir()
        if not is_there(module, ROOT if top in OURS else folder)
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_import_of_ours_has_a_file(folder):
    missing = {
        str(path.relative_to(ROOT)): modules
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (modules := missing_modules(path.read_text(encoding="utf-8"), ROOT / folder))
    }
    assert not missing
