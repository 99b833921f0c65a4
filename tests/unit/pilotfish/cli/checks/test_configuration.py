"""The configuration and the files that it names."""

from pathlib import Path

from pilotfish.cli.checks.configuration import check_configuration, check_named_files
from pilotfish.cli.checks.finding import Severity
from pilotfish.config import load_config


def test_a_good_file_is_what_the_rest_is_checked_with(tmp_path: Path) -> None:
    file = tmp_path / "pilotfish.yaml"
    file.write_text("target: {port: 7}")
    config, finding = check_configuration(file, ["draft.port=8"])
    assert config is not None
    assert (config.target.port, config.draft.port) == (7, 8)
    assert (finding.verdict, finding.found) == (Severity.OK, f"{file} with 1 --set")


def test_a_wrong_key_is_named() -> None:
    config, finding = check_configuration(None, ["target.prot=7"])
    assert config is None
    assert finding.verdict is Severity.PROBLEM
    assert "target.prot" in finding.found


def test_files_that_cannot_be_used_are_problems_each(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x" * 40)
    token.chmod(0o600)
    gone = tmp_path / "gone"
    config = load_config(
        overrides=[
            f"security.internal.token_file={token}",
            f"security.public.api_keys_file={gone}",
            f"security.public.certificate={gone}",
            f"security.public.private_key={gone}",
            "emulation.profile=no-such-profile",
        ]
    )
    verdicts = {finding.check: finding.verdict for finding in check_named_files(config)}
    assert verdicts == {
        "link security": Severity.OK,
        "public certificate": Severity.PROBLEM,
        "api keys": Severity.PROBLEM,
        "hardware profile": Severity.PROBLEM,
    }
