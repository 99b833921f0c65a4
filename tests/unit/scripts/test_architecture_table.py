"""The page of architectures is that of the newest result."""

from tests.support.scripts import SCRIPTS, load_script

script = load_script(SCRIPTS / "architecture_table.py")


def test_the_page_is_that_of_the_newest_result() -> None:
    """`python scripts/architecture_table.py` writes it."""
    assert script.PAGE.read_text(encoding="utf-8") == script.page(script.newest())


def test_every_architecture_is_on_the_page() -> None:
    result = script.newest()
    assert {row["outcome"] for row in result["rows"]} == {"right", "refused"}
    assert {row["path"] for row in result["rows"] if row["outcome"] == "right"} <= set(script.PATHS)
    page = script.page(result)
    assert all(row["architecture"] in page for row in result["rows"])
