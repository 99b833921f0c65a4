"""The links' token: which are taken, which is shown, and how it is changed."""

import logging
import stat
from pathlib import Path

import pytest

from pilotfish.errors import AuthenticationError, ConfigError
from pilotfish.security.link_token import LinkToken, write_new_token

OLD, NEW = "o" * 32, "n" * 40


def test_all_lines_are_taken_and_the_first_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{NEW}\n\n  {OLD}  \n")
    token = LinkToken(str(path))
    assert token.shown == NEW
    token.check(OLD)
    token.check(NEW)
    with pytest.raises(AuthenticationError, match="not ours"):
        token.check(OLD[:-1])
    with pytest.raises(AuthenticationError, match="shows no token"):
        token.check("")
    with pytest.raises(AuthenticationError):
        token.check("é" * 32)


def test_a_changed_file_counts_at_once_and_a_bad_one_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "token"
    path.write_text(OLD)
    token = LinkToken(str(path))
    path.write_text(NEW)
    token.check(NEW)
    with pytest.raises(AuthenticationError):
        token.check(OLD)
    path.write_text("")
    with caplog.at_level(logging.ERROR):
        token.check(NEW)
    assert "stay in use" in caplog.text
    assert NEW not in caplog.text


@pytest.mark.parametrize("content", ["", "\n", "short", "o" * 31, "ö" * 32, "a" * 20 + "\x01" * 20])
def test_what_is_no_good_token_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(ConfigError, match="token"):
        LinkToken(str(path))


def test_a_new_token_is_for_its_owner(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_new_token(tmp_path / name)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert LinkToken(str(tmp_path / "a")).shown != LinkToken(str(tmp_path / "b")).shown
