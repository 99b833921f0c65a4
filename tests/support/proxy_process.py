"""A fault proxy as a child process: exact delays, whatever else this program computes."""

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from pilotfish.errors import ConfigError
from tests.support.conditions import Conditions
from tests.support.fault_proxy import Direction

_ROOT = Path(__file__).parents[2]


class ProxyProcess:
    """`with ProxyProcess("127.0.0.1:50062", Conditions(delay_ms=2)) as proxy`: listens on proxy.address."""

    def __init__(self, to: str, conditions: Conditions | None = None, *, listen: str = "127.0.0.1:0") -> None:
        """See FaultProxy."""
        self._argv = [sys.executable, "-u", "-m", "tests.support.fault_proxy", "--control"]
        self._argv += ["--to", to, "--listen", listen]
        self._conditions = conditions
        self.address = ""
        """host:port where it listens."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._argv, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            self.address = self._read_line().rpartition(" ")[2]
            if self._conditions is not None:
                self.apply(self._conditions)
        except ConfigError:
            self._process.communicate()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # It ends with its input.
        self._process.communicate()

    def apply(self, conditions: Conditions | None = None, direction: Direction = "both") -> None:
        """See FaultProxy. They hold when it returns, some 0.1 ms later."""
        prefix = "" if direction == "both" else f"{direction} "
        self._tell(prefix + (conditions or Conditions()).format())

    def reset(self) -> None:
        """See FaultProxy."""
        self._tell("reset")

    def half_open(self) -> None:
        """See FaultProxy."""
        self._tell("half_open")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        self._read_line()

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise ConfigError("the fault proxy ended; its reason is on the standard error")
        return line
