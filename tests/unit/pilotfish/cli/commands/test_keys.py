"""`pilotfish keys`: the secret is printed once, the file keeps its hash."""

import json
from pathlib import Path

from typer.testing import CliRunner

from pilotfish.cli.main import app
from pilotfish.security.api_key import digest_of
from pilotfish.security.key_ring import KeyRing

runner = CliRunner()


def test_a_created_key_is_good_and_nowhere_but_in_the_output(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    created = runner.invoke(app, ["keys", "create", "ann", "-f", str(file), "--requests-per-min", "7"])
    assert created.exit_code == 0
    secret = created.stdout.strip()
    assert KeyRing(str(file)).allowance(secret).key.limits.requests_per_min == 7
    assert secret not in file.read_text()
    assert digest_of(secret) in file.read_text()
    listed = runner.invoke(app, ["keys", "list", "-f", str(file)])
    assert "ann" in listed.stdout
    assert "no limit" in listed.stdout
    assert secret not in listed.stdout


def test_a_revoked_key_is_gone_and_the_others_stay(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.yaml")
    for name in ("ann", "bob"):
        runner.invoke(app, ["keys", "create", name, "-f", file])
    revoked = runner.invoke(app, ["keys", "revoke", "ann", "-f", file, "--json"])
    assert json.loads(revoked.stdout) == {"name": "ann", "file": file}
    listed = json.loads(runner.invoke(app, ["keys", "list", "-f", file, "--json"]).stdout)
    assert [key["name"] for key in listed["keys"]] == ["bob"]


def test_a_key_may_keep_its_requests_from_being_learned_from(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.yaml")
    for name, *options in (("ann",), ("bob", "--no-learn")):
        runner.invoke(app, ["keys", "create", name, "-f", file, *options])
    listed = json.loads(runner.invoke(app, ["keys", "list", "-f", file, "--json"]).stdout)
    assert {key["name"]: key["learn"] for key in listed["keys"]} == {"ann": True, "bob": False}
    assert "never" in runner.invoke(app, ["keys", "list", "-f", file]).stdout


def test_what_cannot_be_done_says_why(tmp_path: Path) -> None:
    file = str(tmp_path / "keys.yaml")
    assert "cannot read" in runner.invoke(app, ["keys", "list", "-f", file]).stderr
    runner.invoke(app, ["keys", "create", "ann", "-f", file])
    again = runner.invoke(app, ["keys", "create", "ann", "-f", file])
    assert again.exit_code == 1
    assert "has a key 'ann' already" in again.stderr
    unknown = runner.invoke(app, ["keys", "revoke", "bob", "-f", file])
    assert unknown.exit_code == 1
    assert "it has ann" in unknown.stderr
