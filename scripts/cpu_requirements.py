"""Splits requirements.lock for machines without a GPU: torch's CPU build, and the rest without CUDA's libraries.

The Dockerfile runs it, outside of any environment: standard library only.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

_NAME = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)")
_CUDA = re.compile(r"^(torch|triton|nvidia-.*|cuda-.*)$")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def requirements(lock: str) -> list[tuple[str, str, str]]:
    """Name, version and lines of each requirement of a lock file."""
    found: list[tuple[str, str, str]] = []
    for line in lock.splitlines(keepends=True):
        if match := _NAME.match(line):
            found.append((match["name"], match["version"], line))
        elif found and line.startswith(" "):  # its hashes
            name, version, lines = found[-1]
            found[-1] = (name, version, lines + line)
    return found


def torch_requirement(lock: str, sha256: str) -> str:
    """The locked torch, as its CPU index calls it. Raises ValueError for what is no SHA-256 of a file."""
    if not _SHA256.fullmatch(sha256):
        raise ValueError("give the SHA-256 of the index's torch wheel for this Python: 64 hexadecimal digits")
    versions = [version for name, version, _ in requirements(lock) if name == "torch"]
    return f"torch=={versions[0]}+cpu --hash=sha256:{sha256}\n"


def without_cuda(lock: str) -> str:
    """Every other requirement that computes nothing on a GPU."""
    return "".join(lines for name, _, lines in requirements(lock) if not _CUDA.match(name))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lock", type=Path)
    parser.add_argument("--torch-sha256", required=True, help="of the wheel")
    parser.add_argument("--torch", type=Path, required=True, help="file for torch's line")
    parser.add_argument("--rest", type=Path, required=True, help="file for the others")
    options = parser.parse_args(arguments)
    lock = options.lock.read_text(encoding="utf-8")
    try:
        options.torch.write_text(torch_requirement(lock, options.torch_sha256), encoding="utf-8")
    except ValueError as error:
        print(f"error: TORCH_CPU_SHA256: {error}", file=sys.stderr)
        return 1
    options.rest.write_text(without_cuda(lock), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
