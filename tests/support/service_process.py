"""A service as a process at one address: stopped, frozen, and started again at will."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pilotfish.child import tethered
from pilotfish.config import service_environment
from pilotfish.errors import UnavailableError
from pilotfish.launch.specs import free_ports

_START_TIMEOUT_S = 120.0


class ServiceProcess:
    """`with ServiceProcess("draft_service", [...]) as draft`: it answers at draft.address."""

    def __init__(
        self, service: str, arguments: Sequence[str], *, port: int | None = None, log: Path | None = None
    ) -> None:
        """arguments: of its command line. port: default a free one. log: what it says goes there, instead of to the
        standard error."""
        self.service = service
        port = port or free_ports(1)[0]
        self.address = f"127.0.0.1:{port}"
        setting = f"{service.removesuffix('_service')}.port={port}"
        self._argv = tethered(service, *arguments, "--set", setting)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        self.wait_listening()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """By itself."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        """Does not wait. It ends with this process."""
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND) if self._log else None
        try:
            stdout = subprocess.DEVNULL if log is None else log
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.PIPE, stdout=stdout, stderr=log, env=service_environment()
            )
        finally:
            if log is not None:
                os.close(log)

    def wait_listening(self) -> None:
        """Raises UnavailableError."""
        host, _, port = self.address.partition(":")
        end_s = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < end_s and not self.has_ended:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        self.kill()
        reason = self._log.read_text()[-2000:] if self._log else "its reason is on the standard error"
        raise UnavailableError(f"{self.service} at {self.address} did not start: {reason}")

    def kill(self) -> None:
        """SIGKILL; returns when it is gone. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def freeze(self) -> None:
        """It stands still, its connections stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        os.kill(self.pid, signal.SIGCONT)
