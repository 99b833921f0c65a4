"""Which of the kernels compiled ahead suits a processor, and when they are used."""

import os
from pathlib import Path

import pytest

from pilotfish.errors import ConfigError
from pilotfish.models.native import build
from pilotfish.models.native.build import (
    VARIANTS,
    KernelVariant,
    NativeKernelsUnavailableError,
    find_kernels,
    find_prebuilt,
    prebuild,
    require_kernels,
)

AMX, BF16, V4, _, V3 = VARIANTS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "kernels"
    folder.mkdir()
    for variant in VARIANTS:
        variant.library(folder).touch()
    return folder


def processor(tmp_path: Path, *features: str) -> Path:
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor : 0\nvendor_id : X\nflags\t\t: {' '.join(features)}\nbugs : none\n")
    return path


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_the_best_that_the_processor_can_run(variant: KernelVariant, folder: Path, tmp_path: Path) -> None:
    here = processor(tmp_path, "sse2", *variant.needs)
    assert find_prebuilt(folder, here, "amx" if variant is AMX else "auto") == variant.library(folder)


def test_tiles_are_not_taken_untried(folder: Path, tmp_path: Path) -> None:
    assert find_prebuilt(folder, processor(tmp_path, *AMX.needs)) == BF16.library(folder)


def test_the_one_that_the_configuration_names(folder: Path, tmp_path: Path) -> None:
    assert find_prebuilt(folder, processor(tmp_path, *V4.needs), "avx2") == V3.library(folder)
    assert find_prebuilt(folder, processor(tmp_path, *V4.needs), "avx512") == V4.library(folder)


def test_what_the_processor_lacks_is_refused(tmp_path: Path) -> None:
    here = processor(tmp_path, *V3.needs)
    require_kernels("avx2", here)
    require_kernels("auto", processor(tmp_path, "sse2"))
    with pytest.raises(ConfigError, match="does not have: set it to auto"):
        require_kernels("avx512", here)


def test_none_for_an_old_processor_another_release_or_another_system(folder: Path, tmp_path: Path) -> None:
    assert find_prebuilt(folder, processor(tmp_path, *(V3.needs - {"fma"}))) is None
    assert find_prebuilt(folder, tmp_path / "absent") is None
    V3.library(folder).rename(folder / "kernels-x86-64-v3-0123.so")
    assert find_prebuilt(folder, processor(tmp_path, *V3.needs)) is None
    assert find_prebuilt(tmp_path, processor(tmp_path, *V4.needs)) is None


def test_all_variants_are_compiled_for_their_processors_and_need_no_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\nall="$*"\nwhile [ "$1" != -o ]; do shift; done\necho "$all" > "$2"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/nonexistent")
    libraries = prebuild(tmp_path / "out")
    assert [library.name for library in libraries] == [variant.library(Path()).name for variant in VARIANTS]
    for library, variant in zip(libraries, VARIANTS, strict=True):
        command = library.read_text().split()
        assert {*variant.flags, "-static-libstdc++", "-O3"} <= set(command)
        assert "-march=native" not in command


def test_they_stand_in_where_nothing_can_be_compiled(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(build, "find_prebuilt", lambda kernels: V3.library(folder))
    assert find_kernels(tmp_path / "cache") == V3.library(folder)
    monkeypatch.setattr(build, "find_prebuilt", lambda kernels: None)
    with pytest.raises(NativeKernelsUnavailableError, match="no C"):
        find_kernels(tmp_path / "cache")
