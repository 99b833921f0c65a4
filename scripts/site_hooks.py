"""Hooks of mkdocs: pages that live beside the code are pages of the site, and links lead where they lead in the
repository."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).parents[1]
OUTSIDE_PAGES = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/README.md": "examples.md",
}
"""Path in the repository to the page's in the site."""
_REPOSITORY_PATHS = {page: path for path, page in OUTSIDE_PAGES.items()}
_FENCE = re.compile(r"^\s*(```|~~~)")
# Code comes first: brackets in it are no links.
_CODE_OR_LINK = re.compile(r"(?P<code>(`+).+?\2)|(?P<bang>!?)\[(?P<text>(?:`[^`]*`|[^\]`])*)\]\((?P<target>[^)\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """A folder in the nav stands for all of its pages."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))
    return config


def _expanded(nav: Any, folder: Path) -> Any:
    if isinstance(nav, list):
        return [_expanded(each, folder) for each in nav]
    if isinstance(nav, dict):
        return {title: _expanded(each, folder) for title, each in nav.items()}
    if not nav.endswith("/"):
        return nav
    return [page.relative_to(folder).as_posix() for page in sorted((folder / nav).glob("*.md"))]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/."""
    for path, page in OUTSIDE_PAGES.items():
        files.append(File.generated(config, page, content=(REPOSITORY / path).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Mend the links of a page."""
    return site_markdown(markdown, page.file.src_uri, config.repo_url or "")


def site_markdown(markdown: str, page: str, repo_url: str = "") -> str:
    """A page as the site has it. page: its path in the site.

    A link to another page leads to that; one to a file of the repository leads to repo_url, and is text where none is
    set.
    """
    is_code, lines = False, []
    for line in markdown.split("\n"):
        is_fence = _FENCE.match(line) is not None
        if not is_code and not is_fence:
            line = _CODE_OR_LINK.sub(lambda match: _mended(match, page, repo_url), line)
        is_code ^= is_fence
        lines.append(line)
    return "\n".join(lines)


def _mended(match: re.Match[str], page: str, repo_url: str) -> str:
    if match["code"]:
        return match[0]
    target = urlsplit(match["target"])
    if target.scheme or target.netloc or not target.path:
        return match[0]
    folder = posixpath.dirname(_REPOSITORY_PATHS.get(page, f"docs/{page}"))
    path = posixpath.normpath(posixpath.join(folder, target.path))
    if path in OUTSIDE_PAGES or path.startswith("docs/"):
        place = OUTSIDE_PAGES.get(path) or path.removeprefix("docs/")
        if posixpath.splitext(place)[1]:  # a folder is none of the site's
            relative = posixpath.relpath(place, posixpath.dirname(page) or ".")
            return f"{match['bang']}[{match['text']}]({relative}{'#' if target.fragment else ''}{target.fragment})"
    return f"[{match['text']}]({repo_url.rstrip('/')}/blob/main/{path})" if repo_url else match["text"]
