"""Generates the Python stubs of protos/ into pilotfish/rpc/v1 (or the folder given as an argument)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PROTOS = REPOSITORY / "protos"
STUBS = REPOSITORY / "pilotfish" / "rpc" / "v1"
PROTO_PACKAGE = Path("pilotfish") / "v1"

# protoc derives module names from proto paths; ours live one package further down.
_IMPORT = re.compile(r"^(\s*(?:from|import) pilotfish)\.v1\b", re.MULTILINE)


def generate(destination: Path) -> list[Path]:
    """Write *_pb2.py, *_pb2_grpc.py and their .pyi into `destination`; returns their paths.

    Raises: subprocess.CalledProcessError when protoc refuses a proto (its message is on stderr).
    """
    destination.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pilotfish-stubs-") as folder:
        outputs = [f"--{plugin}_out={folder}" for plugin in ("python", "grpc_python", "mypy", "mypy_grpc")]
        sources = sorted(path.relative_to(PROTOS).as_posix() for path in (PROTOS / PROTO_PACKAGE).glob("*.proto"))
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROTOS}", *outputs, *sources]
        # The mypy plugins are console scripts beside the interpreter.
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
        # The plugins tell of every file they write.
        subprocess.run(command, check=True, env={**os.environ, "PATH": path}, stderr=subprocess.PIPE, text=True)
        written = []
        for generated in sorted((Path(folder) / PROTO_PACKAGE).glob("*.py*")):
            generated.write_text(_IMPORT.sub(r"\1.rpc.v1", generated.read_text(encoding="utf-8")), encoding="utf-8")
            written.append(Path(shutil.copy(generated, destination / generated.name)))
        return written


def main() -> int:
    destination = Path(sys.argv[1]) if len(sys.argv) > 1 else STUBS
    try:
        written = generate(destination)
    except subprocess.CalledProcessError as error:
        print(error.stderr, file=sys.stderr, end="")
        return 1
    print(f"{len(written)} files in {destination}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
