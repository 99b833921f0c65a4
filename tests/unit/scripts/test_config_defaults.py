"""The sizes that a config.json may leave out are those of the installed transformers."""

import json

from tests.support.scripts import SCRIPTS, load_script

script = load_script(SCRIPTS / "config_defaults.py")


def test_the_table_is_that_of_the_installed_transformers() -> None:
    """`python scripts/config_defaults.py` writes it."""
    assert json.loads(script.FILE.read_bytes()) == script.rows()
