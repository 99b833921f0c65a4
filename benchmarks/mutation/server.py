"""Runs tests over files as they are or changed, each run in a fork of a process that has torch loaded already.

`python server.py TREE LOG` takes a JSON object a line and answers with one. TREE is a copy of the repository, the
server's own to change: a changed file really stands there, so that the processes which a test starts see it, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import coverage
import psutil
import pytest

PR_SET_CHILD_SUBREAPER = 36
CONTEXT = "MUTATION_CONTEXT"
"""The variable that tells processes whose lines theirs are."""
MAX_DATA_BYTES = 6 << 30
"""Of a run: a mutant may ask for all memory there is."""
IMPORTED, SHARED = "", "shared"
"""Contexts of lines that ran when a file was imported; in a fixture of several tests."""
FLAGS = ["--quiet", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist"]
FLAGS += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of plugins that are loaded already


class Recorder:
    """Which lines each test of a file runs, and how long it takes."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._coverage = measured
        self._test = SHARED
        self._failed: set[str] = set()
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = item.nodeid
        self._switch(self._test)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        self._switch(self._test if fixturedef.scope == "function" else SHARED)
        try:
            return (yield)
        finally:
            self._switch(self._test)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self._failed.add(report.nodeid)

    def _switch(self, context: str) -> None:
        self._coverage.switch_context(context)
        os.environ[CONTEXT] = context

    @property
    def seconds(self) -> dict[str, float]:
        """Of the tests that passed."""
        return {test: seconds for test, seconds in self._seconds.items() if test not in self._failed}


class Selection:
    """Runs the chosen tests only, and keeps the name of the one that failed."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._tests = frozenset(tests)
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._tests]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


def loaded(tests: Sequence[str]) -> list[str]:
    """Modules that there are once all tests are collected, the repository's own aside."""
    pytest.main([*FLAGS, "--collect-only", *tests])
    here = str(Path.cwd())
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
    return [name for name, file in files.items() if file and not file.startswith(here)]


def record(file: str, paths: Sequence[str]) -> dict[str, Any]:
    """Seconds of each test of a file, and by path and line of `paths` who runs it: tests, IMPORTED or SHARED."""
    include = [str(Path(path).absolute() / ("" if path.endswith(".py") else "*")) for path in paths]
    with tempfile.TemporaryDirectory() as folder:
        # What the tests start measures itself, by coverage's own hook at a start of the interpreter.
        options = {
            "data_file": f"{folder}/data",
            "parallel": "true",
            "sigterm": "true",
            "patch": "_exit",
            "context": f"${{{CONTEXT}}}",
        }
        lines = [*(f"{name} = {value}" for name, value in options.items()), "include =", *map("    {}".format, include)]
        Path(folder, "rc").write_text("\n".join(["[run]", *lines, ""]))
        os.environ["COVERAGE_PROCESS_START"] = f"{folder}/rc"
        measured = coverage.Coverage(data_file=None, config_file=False, include=include)
        recorder = Recorder(measured)
        measured.start()
        pytest.main([*FLAGS, file], plugins=[recorder])
        measured.stop()
        data = measured.get_data()
        for part in Path(folder).glob("data.*"):
            others = coverage.CoverageData(str(part))
            others.read()
            data.update(others)
    here = Path.cwd()
    found = {str(Path(path).relative_to(here)): data.contexts_by_lineno(path) for path in data.measured_files()}
    return {"seconds": recorder.seconds, "lines": found}


def run_tests(files: Sequence[str], tests: Sequence[str]) -> dict[str, Any]:
    """How pytest ended, and the test that failed first."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    selection = Selection(tests)
    code = int(pytest.main([*FLAGS, "-x", *files], plugins=[selection]))
    return {"code": code, "failed": selection.failed}


class Server:
    """Does its work in forks. Nothing that they start outlives them."""

    def __init__(self, log: Path) -> None:
        """log: what the latest fork printed."""
        self._log = log
        # Orphans of a test become this process's children, to be ended with the others.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def preload(self, tests: Sequence[str]) -> dict[str, Any]:
        """Import here what the tests import of others: forks then have it."""
        names = self.in_fork(loaded, 600.0, tests=tests)
        for name in names:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
        return {"modules": len(names)}

    def record(self, file: str, paths: Sequence[str], limit_s: float) -> Any:
        return self.in_fork(record, limit_s, file=file, paths=paths)

    def run(self, path: str, source: str, files: Sequence[str], tests: Sequence[str], limit_s: float) -> Any:
        """Run the tests while the file at path has this source."""
        file = Path(path)
        before, status = file.read_bytes(), file.stat()
        try:
            file.write_text(source, encoding="utf-8")
            return self.in_fork(run_tests, limit_s, files=files, tests=tests)
        finally:
            file.write_bytes(before)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # its bytecode counts again

    def in_fork(self, work: Callable[..., Any], limit_s: float, **arguments: Any) -> Any:
        """What the work returns, {"died": exit status} or {"hung": limit_s}."""
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            _be_a_fork(self._log, lambda: json.dumps(work(**arguments)), writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            answer = _first_line(pipe, time.monotonic() + limit_s)
        if answer is None:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        while orphans := psutil.Process().children(recursive=True):
            for process in orphans:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            with contextlib.suppress(ChildProcessError):
                os.wait()
        if answer is None:
            return {"hung": limit_s}
        return json.loads(answer) if answer else {"died": status}


def _be_a_fork(log: Path, work: Callable[[], str], writer: int) -> NoReturn:
    os.setsid()  # a test that ends its own group ends no more than itself
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        with os.fdopen(writer, "w") as pipe:
            pipe.write(f"{work()}\n")
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # whatever threads a test left behind


def _first_line(pipe: BinaryIO, deadline_s: float) -> bytes | None:
    """Empty at the end of the pipe; None at the deadline."""
    line = b""
    while not line.endswith(b"\n"):
        if not select.select([pipe], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
            return None
        part = os.read(pipe.fileno(), 1 << 20)
        if not part:
            return b""
        line += part
    return line


def main() -> None:
    tree, log = (str(Path(argument).resolve()) for argument in sys.argv[1:])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    os.chdir(tree)
    sys.path[0] = tree
    server = Server(Path(log))
    for line in sys.stdin:
        request = json.loads(line)
        result = getattr(server, request.pop("do"))(**request)
        print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()
