"""Looks up the versions in requirements.lock in the database of known vulnerabilities: python scripts/audit.py

Exit status 1: there are some. 0: there are none, or the database could not be asked, which is said.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements.lock"
TIMEOUT_S = 600


def audit(lock: Path) -> dict[str, Any] | None:
    """pip-audit's report; None: it could not make one."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = ("--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json")
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(lock), *options, "--output", str(report)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if report.exists():
            content: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
            return content
        print(ended.stderr.strip().splitlines()[-1] if ended.stderr.strip() else "pip-audit said nothing")
        return None


def verdict(report: dict[str, Any] | None) -> tuple[str, int]:
    """What to say, and the exit status."""
    packages = [] if report is None else report["dependencies"]
    # pip-audit calls a package that the database does not answer for "skipped", and says that all is well.
    checked = [package for package in packages if "skip_reason" not in package]
    if not checked:
        return "nothing was checked: the database of known vulnerabilities cannot be reached from here", 0
    lines = [
        f"{package['name']} {package['version']}: {finding['id']}"
        + (f", mended in {', '.join(finding['fix_versions'])}" if finding["fix_versions"] else ", not mended yet")
        for package in checked
        for finding in package["vulns"]
    ]
    num_unknown = len(packages) - len(checked)
    summary = f"{len(checked)} packages checked, {len(lines)} known vulnerabilities"
    return "\n".join([*lines, summary + (f", {num_unknown} packages not found" if num_unknown else "")]), int(
        bool(lines)
    )


if __name__ == "__main__":
    text, status = verdict(audit(LOCK))
    print(text)
    sys.exit(status)
