"""The documentation's site: every page has its place, every link leads somewhere, and it builds."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from markdown.extensions.toc import slugify
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(?P<text>.+?)\s*$", re.MULTILINE)
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)
WRITTEN_ELSEWHERE = (".venv", "build", "node_modules")
PAGES = [
    page
    for page in sorted(ROOT.rglob("*.md"))
    if not any(part.startswith(".") or part in WRITTEN_ELSEWHERE for part in page.relative_to(ROOT).parts)
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """mkdocs.yml as mkdocs reads it."""
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path_factory.mktemp("site")))
    return config.plugins.on_config(config)


def pages_in(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    for each in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from pages_in(each)


def test_every_page_has_one_place(site: Any) -> None:
    named = list(pages_in(site.nav))
    assert len(named) == len(set(named))
    hooks = next(iter(site.hooks.values()))
    written = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert set(named) == written | set(hooks.OUTSIDE_PAGES.values())


def anchors_of(page: Path) -> set[str]:
    text = re.sub(r"^(```|~~~).*?^\1", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {slugify(re.sub(r"[`*]|\]\([^)]*\)|\[", "", match["text"]), "-") for match in HEADING.finditer(text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """In the repository; the build below sees to the site."""
    for match in LINK.finditer(CODE.sub("", page.read_text())):
        path, _, anchor = unquote(match["target"]).partition("#")
        if ":" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), match["target"]
        if anchor and target.suffix == ".md":
            assert anchor in anchors_of(target), match["target"]


def test_it_builds_without_a_warning(site: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "mkdocs"):
        build(site)
    # Services that other tests share may have a word of their own meanwhile.
    assert [each.getMessage() for each in caplog.records if each.name.startswith("mkdocs")] == []
    folder = Path(site.site_dir)
    home = (folder / "index.html").read_text()
    assert 'href="openai-api/"' in home
    assert "images/playground-compare.png" in home
    assert not re.search(r'(src|href)="https?://(?!github\.com|squidfunk|www\.mkdocs)[^"]*\.(js|css|woff2?)"', home)
