"""When the kernels may use AMX tiles, and what happens where they may not. No test needs a processor with tiles."""

import functools
import logging
import os
import sys
from pathlib import Path

import pytest

from pilotfish.errors import ConfigError
from pilotfish.models.native import amx, build
from pilotfish.models.native.amx import main, request_tiles, tiles_fault
from pilotfish.models.native.build import VARIANTS, build_kernels, find_kernels, find_prebuilt, variants_here
from tests.support.native_kernels import EMULATED_TILES, KERNELS_HERE, compiled_for

AMX, BF16 = VARIANTS[:2]


@pytest.fixture
def granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux permits tiles to this process."""
    monkeypatch.setattr(amx, "request_tiles", lambda: "")


def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """What runs in place of Python as a trial; returns a file to which each run adds a line."""
    program, runs = tmp_path / "python", tmp_path / "runs"
    program.write_text(f"#!/bin/sh\necho run >> {runs}\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(amx.sys, "executable", str(program))
    return runs


@pytest.mark.skipif(bool(variants_here("amx")), reason="this processor has tiles")
def test_a_processor_without_tiles_is_refused_with_a_reason() -> None:
    assert request_tiles()


@pytest.mark.usefixtures("granted")
@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("exit 0", ""),
        ("kill -ILL $$", "a trial of them ended with SIGILL"),
        ("echo 3 results differ >&2; exit 3", "3 results differ"),
    ],
)
def test_tiles_are_tried_once_in_a_process_of_its_own(
    script: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = python(tmp_path, monkeypatch, script)
    record = tmp_path / "cache" / "record"
    assert tiles_fault(Path("kernels.so"), record) == fault
    kept = tiles_fault(Path("kernels.so"), record)
    assert kept == (f"{fault} (delete {record} to try again)" if fault else "")
    assert runs.read_text() == "run\n"
    record.unlink()
    assert tiles_fault(Path("kernels.so"), record) == fault
    assert runs.read_text() == "run\n" * 2


@pytest.mark.usefixtures("granted")
@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("kill -KILL $$", "a trial of them ended with SIGKILL"),
        ("kill -TERM $$", "a trial of them ended with SIGTERM"),
        ("kill -ABRT $$", "a trial of them ended with SIGABRT"),
        ("echo Traceback >&2; echo MemoryError >&2; exit 1", "MemoryError"),
        ("exit 2", "a trial of them ended with 2"),
    ],
)
def test_what_ended_a_trial_from_without_is_tried_again_at_the_next_start(
    script: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record"
    with monkeypatch.context() as patched:
        python(tmp_path, patched, script)
        assert tiles_fault(Path("kernels.so"), record) == fault
    python(tmp_path, monkeypatch, "exit 0")
    assert tiles_fault(Path("kernels.so"), record) == ""


def test_tiles_that_linux_refuses_are_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = python(tmp_path, monkeypatch, "exit 0")
    monkeypatch.setattr(amx, "request_tiles", lambda: "Linux refuses them")
    assert tiles_fault(Path("kernels.so"), tmp_path / "record") == "Linux refuses them"
    assert not runs.exists()


@pytest.mark.usefixtures("granted")
def test_a_trial_of_emulated_tiles_passes_and_one_without_tiles_fails(
    kernel_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if EMULATED_TILES not in KERNELS_HERE:
        pytest.skip("no AVX2")
    with compiled_for(EMULATED_TILES) as named:
        monkeypatch.setattr(sys, "argv", ["amx", str(build_kernels(kernel_cache, named))])
        main()
    # The library of vectors has no tiles to compare.
    monkeypatch.setattr(sys, "argv", ["amx", str(build_kernels(kernel_cache, named))])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    assert "differ" in capsys.readouterr().err


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A processor with tiles, no compiler, and every library compiled ahead in this folder."""
    folder, cpuinfo = tmp_path / "kernels", tmp_path / "cpuinfo"
    folder.mkdir()
    for variant in VARIANTS:
        variant.library(folder).touch()
    cpuinfo.write_text(f"flags : {' '.join(AMX.needs)}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/nonexistent")
    monkeypatch.setattr(build, "variants_here", lambda kernels, _=cpuinfo: variants_here(kernels, cpuinfo))
    monkeypatch.setattr(build, "find_prebuilt", functools.partial(find_prebuilt, folder, cpuinfo))
    return folder


def test_tiles_that_pass_are_used(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "tiles_fault", lambda library, record: "")
    assert find_kernels(tmp_path / "a") == find_kernels(tmp_path / "a", "amx") == AMX.library(image)
    assert find_kernels(tmp_path / "a", "avx512") == BF16.library(image)


def test_those_that_fail_are_refused_by_name_and_else_warned_of_once(
    image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(build, "tiles_fault", lambda library, record: "they gave other bits")
    with pytest.raises(ConfigError, match=r"engine\.kernels is amx.*they gave other bits.*Set it to avx512"):
        find_kernels(tmp_path / "b", "amx")
    with caplog.at_level(logging.WARNING):
        assert find_kernels(tmp_path / "b") == find_kernels(tmp_path / "b") == BF16.library(image)
    (told,) = caplog.messages
    assert "they gave other bits" in told
    assert "engine.kernels: avx512" in told
