"""What an image for CPUs installs."""

from pathlib import Path

import pytest

from tests.support.scripts import SCRIPTS, load_script

ROOT = Path(__file__).parents[3]
SHA256 = "0" * 64
script = load_script(SCRIPTS / "cpu_requirements.py")


def test_torch_apart_and_nothing_of_cuda(tmp_path: Path) -> None:
    lock = ROOT / "requirements.lock"
    torch, rest = tmp_path / "torch.txt", tmp_path / "rest.txt"
    assert script.main([str(lock), "--torch-sha256", SHA256, "--torch", str(torch), "--rest", str(rest)]) == 0
    assert torch.read_text() == f"torch==2.13.0+cpu --hash=sha256:{SHA256}\n"
    names = [name for name, _, _ in script.requirements(rest.read_text())]
    everything = [name for name, _, _ in script.requirements(lock.read_text())]
    left_out = set(everything) - set(names)
    assert {"torch", "triton"} < left_out
    assert all(name in ("torch", "triton") or name.startswith(("nvidia-", "cuda-")) for name in left_out)
    assert {"transformers", "grpcio", "ray", "numpy"} <= set(names)


def test_a_hash_must_be_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = str(ROOT / "requirements.lock")
    arguments = [lock, "--torch-sha256", "", "--torch", str(tmp_path / "t"), "--rest", str(tmp_path / "r")]
    assert script.main(arguments) == 1
    assert "TORCH_CPU_SHA256: give the SHA-256" in capsys.readouterr().err
