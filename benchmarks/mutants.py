"""Which share of seeded faults do the tests catch?

A sample of small changes of the code (mutation/mutations.py), each against the tests that run the changed line, until
one fails. What survives is listed: some of it is a gap in the tests, some changes nothing that anybody could see;
nobody has judged which.

Works on a copy of HEAD in --work, and goes on there where it was stopped. (mutmut leaves decorated functions and module
level out, cosmic-ray starts a process per mutant, and to import torch takes seconds.) Needs `coverage`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mutation.mutations import Mutant, sample, unchanged
from mutation.reach import Batch, Reach
from shared.report import Report, parser

PATHS = [
    "pilotfish/speculation",
    "pilotfish/engine",
    "orchestrator/session.py",
    "orchestrator/round.py",
    "orchestrator/target.py",
]
TESTS = ["tests/unit", "tests/distribution"]
QUICK_PATHS, QUICK_TESTS = ["pilotfish/speculation"], ["tests/unit/pilotfish/speculation"]
CONTROL_EVERY = 25
"""One of so many is run unchanged, too: what fails then is the tests' own doing."""
RECORD_LIMIT_S = 1800.0
PASSED, NO_TESTS = 0, 5
"""Of pytest's exit codes."""


class Runner:
    """The process that runs tests over the copy."""

    def __init__(self, work: Path, tree: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        environment["CI"] = "1"  # Hypothesis: no random examples, no database
        server = Path(__file__).parent / "mutation" / "server.py"
        self._process = subprocess.Popen(
            [sys.executable, str(server), str(tree), str(work / "log")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, do: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"the process that runs the tests ended with status {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def copy_of_head(work: Path, paths: Sequence[str]) -> str:
    """Make or restore the copy in work/tree; its commit. Files have the commit's time, so that bytecode stays valid."""
    note, tree = work / "about.json", work / "tree"
    if not note.exists():
        tree.mkdir(parents=True, exist_ok=True)
        head = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        note.write_text(json.dumps({"commit": head, "paths": paths}))
    about = json.loads(note.read_text())
    if about["paths"] != paths:
        raise SystemExit(f"{work} is of {' '.join(about['paths'])}: give another --work")
    archive = subprocess.run(["git", "archive", about["commit"]], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)
    return str(about["commit"])


def kept(path: Path) -> list[dict[str, Any]]:
    """What earlier runs wrote there; a last line that was cut off is left out."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def records(runner: Runner, files: Sequence[str], paths: Sequence[str], path: Path) -> Iterator[dict[str, Any]]:
    """Of each file of tests what it runs, from `path` or measured now."""
    known = {record["file"]: record for record in kept(path)}
    for number, file in enumerate(files, 1):
        if file not in known:
            found = runner.ask("record", file=file, paths=paths, limit_s=RECORD_LIMIT_S)
            if "lines" not in found:
                raise SystemExit(f"{file} has {found}; see {path.parent / 'log'}")
            known[file] = {"file": file, **found}
            _append(path, known[file])
            print(f"{number}/{len(files)} {file}: {len(known[file]['seconds'])} tests", flush=True)
        yield known[file]


def verdict(runner: Runner, path: str, source: str, batches: Iterable[Batch]) -> dict[str, Any]:
    """killed, by what; survived; or not run by any test."""
    is_run = False
    for batch in batches:
        is_run = True
        limit_s = 30.0 + 10 * batch.seconds
        end = runner.ask("run", path=path, source=source, files=batch.files, tests=batch.tests, limit_s=limit_s)
        if end.get("code") == NO_TESTS:
            raise SystemExit(f"no test was found of {batch.tests}")
        if end.get("code") != PASSED:
            how = "hung" if "hung" in end else "died" if "died" in end else end["failed"] or "does not import"
            return {"verdict": "killed", "by": how}
    return {"verdict": "survived" if is_run else "not run", "by": ""}


def judge(runner: Runner, tree: Path, mutants: Sequence[Mutant], reach: Reach, path: Path) -> list[dict[str, Any]]:
    """The verdict on each mutant and control, from `path` or found now."""
    known = {(entry["path"], entry["index"], entry["is_control"]): entry for entry in kept(path)}
    asked: list[tuple[Mutant, bool]] = []
    for number, mutant in enumerate(mutants):
        asked += [(mutant, False), (mutant, True)] if number % CONTROL_EVERY == 0 else [(mutant, False)]
    result: list[dict[str, Any]] = []
    for mutant, is_control in asked:
        entry = known.get((mutant.path, mutant.index, is_control))
        if entry is None:
            start = time.monotonic()
            source = unchanged(tree, mutant.path) if is_control else mutant.source(tree)
            entry = {**asdict(mutant), "is_control": is_control}
            entry |= verdict(runner, mutant.path, source, reach.batches(mutant))
            entry["seconds"] = round(time.monotonic() - start, 1)
            _append(path, entry)
        result.append(entry)
        caught = sum(entry["verdict"] == "killed" for entry in result)
        what = "unchanged" if is_control else mutant.description
        print(
            f"{len(result)}/{len(asked)}, {caught} killed. {entry['verdict']} {entry['by']} {entry['seconds']:.0f} s: "
            f"{mutant.path}:{mutant.line} {what}",
            flush=True,
        )
    return result


def fill(report: Report, entries: Sequence[dict[str, Any]], paths: Sequence[str]) -> None:
    """A row for each of paths, for all, and for each mutant that was not caught."""
    mutants = [entry for entry in entries if not entry["is_control"]]
    for path in [*paths, ""]:
        counts = Counter(entry["verdict"] for entry in mutants if entry["path"].startswith(path))
        total = sum(counts.values())
        share = counts["killed"] / total if total else 1.0
        report.row(where=path or "all", mutants=total, killed=counts["killed"], share=share)
    for entry in sorted(mutants, key=lambda entry: (entry["path"], entry["line"])):
        if entry["verdict"] != "killed":
            where = f"{entry['path']}:{entry['line']}"
            report.row(where=where, verdict=entry["verdict"], kind=entry["kind"], change=entry["description"])
    report.check("share killed", share, 0.0, "", "at least")
    false_kills = sum(entry["verdict"] == "killed" for entry in entries if entry["is_control"])
    report.check("unchanged files on which a test failed", false_kills, 0, "", "equal to")


def main(arguments: Sequence[str] | None = None) -> int:
    options_parser = parser(__doc__)
    options_parser.add_argument("paths", nargs="*", help=f"what is changed (default {' '.join(PATHS)})")
    options_parser.add_argument("--tests", nargs="+", help=f"default {' '.join(TESTS)}")
    options_parser.add_argument("--mutants", type=int, help="default 500, with --quick 10")
    options_parser.add_argument("--seed", type=int, default=1, help="of the sample (default 1)")
    options_parser.add_argument("--work", type=Path, help="the copy, and what is known; default build/mutants")
    options = options_parser.parse_args(arguments)
    count = options.mutants or (10 if options.quick else 500)
    paths = options.paths or (QUICK_PATHS if options.quick else PATHS)
    tests = options.tests or (QUICK_TESTS if options.quick else TESTS)
    work = (options.work or Path("build/mutants-quick" if options.quick else "build/mutants")).resolve()
    tree = work / "tree"
    commit = copy_of_head(work, paths)
    mutants = sample(tree, paths, count, options.seed)
    found = (sorted((tree / path).rglob("test_*.py")) if (tree / path).is_dir() else [tree / path] for path in tests)
    files = [str(file.relative_to(tree)) for some in found for file in some]
    runner = Runner(work, tree)
    try:
        print(runner.ask("preload", tests=tests), flush=True)
        reach = Reach(records(runner, files, paths, work / "records.jsonl"))
        entries = judge(runner, tree, mutants, reach, work / "verdicts.jsonl")
    finally:
        runner.close()
    report = Report(
        "Which share of seeded faults do the tests catch?",
        {"commit": commit, "seed": options.seed, "tests": f"{reach.num_tests} of {' '.join(tests)}"},
        columns={"where": "where", "mutants": "mutants", "killed": "killed", "share": "share", "change": "not caught"},
    )
    fill(report, entries, paths)
    report.finish(options)
    return 0


def _append(path: Path, entry: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    sys.exit(main())
