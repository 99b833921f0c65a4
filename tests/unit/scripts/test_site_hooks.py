"""Links of pages, as the site has them."""

import pytest

from tests.support.scripts import SCRIPTS, load_script

hooks = load_script(SCRIPTS / "site_hooks.py")


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("index.md", "[x](docs/routing.md)", "[x](routing.md)"),
        ("index.md", "![x](docs/images/a.png)", "![x](images/a.png)"),
        ("index.md", "[x](ARCHITECTURE.md#packages)", "[x](architecture.md#packages)"),
        ("benchmarks.md", "[x](../docs/benchmarking.md)", "[x](benchmarking.md)"),
        ("routing.md", "[x](../SECURITY.md)", "[x](security.md)"),
        ("routing.md", "[x](decisions/0006-rounds.md)", "[x](decisions/0006-rounds.md)"),
        ("decisions/0006-rounds.md", "[x](../routing.md#a)", "[x](../routing.md#a)"),
        ("decisions/0006-rounds.md", "[x](../../README.md)", "[x](../index.md)"),
        ("routing.md", "[x](https://example.org/a.md), [y](#here)", "[x](https://example.org/a.md), [y](#here)"),
        ("routing.md", "[`a[0]`](../orchestrator/session.py) and", "`a[0]` and"),
        ("index.md", "[docs/decisions/](docs/decisions/)", "docs/decisions/"),
        ("routing.md", "`[x](../a.py)`", "`[x](../a.py)`"),
    ],
)
def test_links_lead_where_they_lead_in_the_repository(page: str, link: str, expected: str) -> None:
    assert hooks.site_markdown(link, page) == expected


def test_files_are_linked_where_the_repository_has_an_address() -> None:
    mended = hooks.site_markdown("[x](../pilotfish/types.py)", "routing.md", "https://example.org/r/")
    assert mended == "[x](https://example.org/r/blob/main/pilotfish/types.py)"
