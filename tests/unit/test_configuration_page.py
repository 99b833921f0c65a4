"""docs/configuration.md is what scripts/configuration_reference.py makes of the dataclasses today."""

import re
from pathlib import Path

from pilotfish.config import Config, load_config
from tests.support.scripts import SCRIPTS, load_script

reference = load_script(SCRIPTS / "configuration_reference.py")


def test_the_page_is_current() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(), "run `make docs-config`"


def test_every_key_says_what_it_means() -> None:
    assert reference.undocumented() == []


def test_every_link_leads_to_a_heading() -> None:
    text = reference.page()
    headings = re.findall(r"^#+ `?([^`\n]+)`?$", text, flags=re.MULTILINE)
    anchors = {heading.replace(".", "").lower() for heading in headings}
    links = re.findall(r"\]\(#([^)]+)\)", text)
    assert len(links) > 8
    assert set(links) <= anchors


def test_the_example_loads(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", reference.page(), flags=re.DOTALL)
    file = tmp_path / "example.yaml"
    file.write_text(example)
    assert load_config(file) != Config()
