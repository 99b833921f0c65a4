"""Kernels that cannot be compiled are an answer, not a crash; those that can are compiled once."""

import os
from pathlib import Path

import pytest

from pilotfish.models.native.build import NativeKernelsUnavailableError, build_kernels, load_kernels

VERSION = 'if [ "$1" = --version ]; then echo "fake 1.0"; exit 0; fi'


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A c++ that each test writes; the only one on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/nonexistent")
    return folder / "c++"


def write(compiler: Path, script: str) -> None:
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)


def test_no_compiler(compiler: Path, tmp_path: Path) -> None:
    assert not compiler.exists()
    with pytest.raises(NativeKernelsUnavailableError, match="no C"):
        build_kernels(tmp_path)


def test_a_compiler_that_cannot_be_run(compiler: Path, tmp_path: Path) -> None:
    compiler.write_text("no program at all")
    compiler.chmod(0o755)
    with pytest.raises(NativeKernelsUnavailableError, match="cannot build"):
        build_kernels(tmp_path)


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(compiler: Path, tmp_path: Path) -> None:
    write(compiler, f"{VERSION}\necho 'no such -march' >&2; exit 1")
    with pytest.raises(NativeKernelsUnavailableError, match="no such -march"):
        build_kernels(tmp_path)
    assert list((tmp_path / "native").iterdir()) == []


def test_a_cache_that_is_no_folder(compiler: Path, tmp_path: Path) -> None:
    write(compiler, VERSION)
    (tmp_path / "file").write_text("")
    with pytest.raises(NativeKernelsUnavailableError, match="cannot build into"):
        build_kernels(tmp_path / "file")


def test_another_compiler_builds_anew_and_the_same_one_does_not(compiler: Path, tmp_path: Path) -> None:
    output = 'while [ "$1" != -o ]; do shift; done; echo built > "$2"'
    write(compiler, f"{VERSION}\n{output}")
    first = build_kernels(tmp_path)
    built_ns = first.stat().st_mtime_ns
    assert build_kernels(tmp_path) == first
    assert first.stat().st_mtime_ns == built_ns
    write(compiler, f"{VERSION.replace('1.0', '2.0')}\n{output}")
    assert build_kernels(tmp_path) != first


def test_a_damaged_library_is_not_loaded(tmp_path: Path) -> None:
    library = tmp_path / "kernels.so"
    library.write_bytes(b"half a file")
    with pytest.raises(NativeKernelsUnavailableError, match="cannot load"):
        load_kernels(library)
