"""The trainer as a process: what it refuses to start with, and that nothing ends it but a signal."""

import base64
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from pilotfish.config import config_from_dict
from pilotfish.errors import ModelError
from pilotfish.training.online import service
from pilotfish.training.online.service import learn, main


@pytest.fixture
def settings(learning: list[str]) -> list[str]:
    return [part for value in learning for part in ("--set", value)]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 1
    return capsys.readouterr().err


@pytest.fixture(autouse=True)
def same_signals_and_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of the process that runs the tests."""
    monkeypatch.setattr(service, "configure_logging", lambda *_: None)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_what_cannot_work_is_refused_at_the_start(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "draft.learning.enabled is false: set it to true" in refusal(capsys)
    (tmp_path / "key").write_text("too short")
    assert "must hold 32 bytes" in refusal(capsys, *settings, "--set", f"draft.learning.key_file={tmp_path / 'key'}")
    assert "features that `pilotfish train` has kept" in refusal(capsys, *settings, "--set", "draft.learning.data=none")
    assert "no such key" in refusal(capsys, *settings, "--set", "draft.learning.nap=1")


def test_another_trainer_in_the_folder_is_not_joined(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "learning").mkdir()
    with FileLock(tmp_path / "learning" / "trainer.lock"):
        assert "another trainer works in" in refusal(capsys, *settings)


class Failing:
    """A trainer whose turns fail at first."""

    def __init__(self, stop: threading.Event, errors: list[Exception]) -> None:
        self.stop, self.errors = stop, errors

    def turn(self) -> bool:
        if self.errors:
            raise self.errors.pop(0)
        self.stop.set()
        return True


def test_errors_are_told_once_each_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "RETRY_S", 0.0)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    stop = threading.Event()
    torch_error = RuntimeError("DefaultCPUAllocator: can't allocate memory")
    trainer: Any = Failing(stop, [full, full, ModelError("versions/3 is damaged"), torch_error])
    learn(trainer, stop)
    assert [record.message.partition("stays: ")[2] for record in caplog.records] == [
        "[Errno 28] No space left on device",
        "versions/3 is damaged",
        "DefaultCPUAllocator: can't allocate memory",
    ]


def test_a_signal_ends_it_and_a_kill_leaves_no_lock(settings: list[str], tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(base64.b64encode(bytes(32)))
    command = [sys.executable, "-m", "pilotfish.training.online", *settings]
    command += ["--set", f"draft.learning.key_file={key}"]
    for number, status in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 0)):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                line = process.stdout.readline()
                niceness = os.getpriority(os.PRIO_PROCESS, process.pid)
            finally:
                process.send_signal(number)
            assert line == f"trainer ready on {tmp_path / 'learning'} (version 0 serves)\n"
            assert niceness == 19
            assert process.wait(60) == status


def test_the_configuration_says_where_it_works(settings: list[str], tmp_path: Path) -> None:
    values = {"target": {"model": "m", "drafter": {"proposer": "eagle3", "model": "h"}}, "cache_dir": str(tmp_path)}
    assert config_from_dict(values).learning_folder == tmp_path / "learning" / "m--h"
