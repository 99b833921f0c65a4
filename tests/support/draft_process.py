"""The draft service as a process at one address: stopped, frozen, and started again at will."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from pilotfish.config import environment
from pilotfish.errors import UnavailableError
from pilotfish.launch.specs import free_ports
from pilotfish.launch.tether import tethered

_START_TIMEOUT_S = 60.0


class DraftProcess:
    """`with DraftProcess([...]) as draft`: it answers at draft.address."""

    def __init__(self, overrides: Sequence[str]) -> None:
        """overrides: of the configuration."""
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self._argv = tethered("draft_service")
        for override in (*overrides, f"draft.port={port}"):
            self._argv += ["--set", override]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Returns when it listens. Raises UnavailableError."""
        self._process = subprocess.Popen(self._argv, stdout=subprocess.DEVNULL, env=environment())
        host, _, port = self.address.partition(":")
        end_s = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < end_s and self._process.poll() is None:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        self.kill()
        raise UnavailableError("the draft service did not start; its reason is on the standard error")

    def kill(self) -> None:
        """SIGKILL; returns when it is gone. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def freeze(self) -> None:
        """It stands still, its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """It goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
