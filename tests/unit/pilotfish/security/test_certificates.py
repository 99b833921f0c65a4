"""Certificates are checked when they are read, follow their files, and outlive a bad replacement."""

import codecs
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from pilotfish.errors import ConfigError
from pilotfish.security.certificates import CertificateFiles, CertificateSource

Issue = Callable[..., CertificateFiles]


def test_a_replaced_certificate_is_read_anew(issue: Issue) -> None:
    files = issue()
    source = CertificateSource(files)
    first, context = source.current, source.server_context
    assert source.current is first
    assert source.server_context is context
    issue()
    assert source.current.chain == Path(files.certificate).read_bytes() != first.chain
    assert source.server_context is not context


def test_half_a_replacement_leaves_the_old_one_in_use(issue: Issue, caplog: pytest.LogCaptureFixture) -> None:
    files = issue()
    source = CertificateSource(files)
    first, old_key = source.current, Path(files.private_key).read_bytes()
    issue()
    new_key = Path(files.private_key).read_bytes()
    Path(files.private_key).write_bytes(old_key)
    with caplog.at_level(logging.ERROR):
        assert source.current is first
    assert "stay in use" in caplog.text
    Path(files.private_key).write_bytes(new_key)
    assert source.current.private_key == new_key


def test_marks_line_ends_and_comments_of_other_systems_are_read_past(issue: Issue) -> None:
    files = issue()
    for name in (files.certificate, files.private_key, files.ca):
        pem = Path(name).read_bytes().replace(b"\n", b"\r\n")
        Path(name).write_bytes(codecs.BOM_UTF8 + "# Főtanúsítvány\r\n".encode() + pem)
    current = CertificateSource(files).current
    # gRPC looks for PEM's first line at the beginning of a line: the mark must not be there.
    assert all(each and each.startswith(b"# F") for each in (current.chain, current.private_key, current.ca))


@pytest.mark.parametrize("name", ["certificate", "private_key", "ca"])
def test_files_that_cannot_be_used_are_refused_by_name(issue: Issue, name: str) -> None:
    files = issue()
    path = Path(getattr(files, name))
    path.write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match=path.name):
        CertificateSource(files)
    path.unlink()
    with pytest.raises(ConfigError, match=f"cannot read .*{path.name}: No such file"):
        CertificateSource(files)


def test_a_key_with_a_pass_phrase_asks_no_terminal(issue: Issue) -> None:
    files = issue()
    key = serialization.load_pem_private_key(Path(files.private_key).read_bytes(), None)
    Path(files.private_key).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigError, match="pass phrase"):
        CertificateSource(files)
