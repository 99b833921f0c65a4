"""`run_service` in this process, with signals to this process."""

import asyncio
import errno
import io
import os
import signal
import sys
from collections.abc import Callable

import pytest

from pilotfish.config import Config
from pilotfish.errors import UnavailableError
from pilotfish.rpc.command import run_service


class FakeService:
    """Stops at once, unless told to hang in its first drain."""

    address = "127.0.0.1:1"

    def __init__(self, *, hangs_in_drain: bool = False, loss: Exception | None = None) -> None:
        self._hangs_in_drain = hangs_in_drain
        self._loss = loss
        self.graces: list[float] = []

    async def drain_and_stop(self, grace_s: float) -> None:
        self.graces.append(grace_s)
        if self._hangs_in_drain and grace_s > 0:
            interrupt()
            await asyncio.Event().wait()

    async def wait_closed(self) -> None:
        if self._loss is not None:
            raise self._loss
        interrupt()
        await asyncio.Event().wait()


def interrupt(number: int = signal.SIGINT) -> None:
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), number)


def run(start: Callable, *arguments: str) -> int:
    return run_service("fake_service", start, lambda _: "fake", arguments)


def starter(service: FakeService) -> Callable:
    async def start(config: Config) -> FakeService:
        return service

    return start


@pytest.mark.parametrize(
    ("settings", "drain_s"), [((), 30.0), (("--set", "deployment.orchestrator.drain_s=600"), 600.0)]
)
def test_a_second_signal_ends_the_drain(
    settings: tuple[str, ...], drain_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    service = FakeService(hangs_in_drain=True)
    assert run(starter(service), *settings) == 0
    assert service.graces == [drain_s, 0]


def test_a_signal_while_it_starts_cancels_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    cancelled = []

    async def start(config: Config) -> FakeService:
        interrupt(signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        raise AssertionError

    assert run(start) == 0
    assert cancelled == [True]
    assert capsys.readouterr() == ("", "")


def test_a_lost_service_is_stopped_and_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    service = FakeService(loss=UnavailableError("the engine is gone"))
    assert run(starter(service)) == 1
    assert capsys.readouterr().err == "error: the engine is gone\n"
    assert len(service.graces) == 1


def test_the_configuration_comes_from_the_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    seen = []

    async def start(config: Config) -> FakeService:
        seen.append(config.target.port)
        return FakeService()

    assert run(start, "--set", "target.port=7") == 0
    assert seen == [7]
    assert run(start, "--set", "nonsense") == 1
    assert "must look like section.key=value" in capsys.readouterr().err
    assert run(start, "--config", "/nonexistent.yaml") == 1
    assert "cannot read configuration /nonexistent.yaml" in capsys.readouterr().err


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_line_that_cannot_be_printed_ends_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", FullDisk())
    service = FakeService()
    assert run(starter(service)) == 0
    assert service.graces == [30.0]
