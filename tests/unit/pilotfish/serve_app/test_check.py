"""`python -m pilotfish.serve_app.check`, without a cluster."""

from pathlib import Path

import pytest
import yaml

from pilotfish.config import Config
from pilotfish.errors import ConfigError, UnavailableError
from pilotfish.launch.specs import free_ports
from pilotfish.pools.options import serve_file
from pilotfish.serve_app.check import check


def test_a_generated_file_is_right(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump(serve_file(Config())))
    assert "3 applications, 3 deployments" in check(path, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "is not YAML"),
        ("a: \xcc", "is not YAML"),
        ("applicatoins: []", "did you mean applications"),
        ("applications: []\napplications: []", "line 2, column 1: the key applications is here twice"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=said):
        check(path, "")


def test_where_nobody_listens_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(yaml.safe_dump(serve_file(Config())))
    (port,) = free_ports(1)
    with pytest.raises(UnavailableError, match=f"no Ray cluster at 127.0.0.1:{port}: .*refused"):
        check(path, f"127.0.0.1:{port}")
