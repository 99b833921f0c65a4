"""docs/configuration.md is what scripts/configuration_reference.py makes of the dataclasses today."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from pilotfish.config import Config, load_config

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    path = REPOSITORY / "scripts" / "configuration_reference.py"
    spec = importlib.util.spec_from_file_location("configuration_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current(reference: ModuleType) -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), "run `make docs-config`"


def test_every_key_says_what_it_means(reference: ModuleType) -> None:
    assert reference.undocumented() == []


def test_every_link_leads_to_a_heading(reference: ModuleType) -> None:
    text = reference.page()
    headings = re.findall(r"^#+ `?([^`\n]+)`?$", text, flags=re.MULTILINE)
    anchors = {heading.replace(".", "").lower() for heading in headings}
    links = re.findall(r"\]\(#([^)]+)\)", text)
    assert len(links) > 8
    assert set(links) <= anchors


def test_the_example_loads(reference: ModuleType, tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", reference.page(), flags=re.DOTALL)
    file = tmp_path / "example.yaml"
    file.write_text(example)
    assert load_config(file) != Config()
