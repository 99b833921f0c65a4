"""The services as plain processes for as long as a `with` block lasts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import re
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from pilotfish.config import Config, PublicSecurityConfig
from pilotfish.errors import UnavailableError
from pilotfish.launch.specs import Launch, prepare
from pilotfish.launch.supervisor import Supervisor

_HTTP_URL = re.compile(r"orchestrator ready on .*, (?P<url>http://[^\s,)]+)")
START_TIMEOUT_S = 300.0
"""Compiling the kernels and reading a model from a cold disk included."""


class LocalStack:
    """`with LocalStack(config) as stack`: every service answers, on free ports; none is left at the end.

    Runs its supervisor on a thread, so that blocking programs can use it. Unlike under `pilotfish up`, the
    draft service is essential: who measures drafts wants to know that there are none.
    """

    def __init__(self, config: Config, *, on_line: Callable[[str, str], None] | None = None) -> None:
        """on_line(child name, line) is called on the supervisor's thread for every line that a service prints."""
        http = dataclasses.replace(config.orchestrator.http, port=0)
        orchestrator = dataclasses.replace(config.orchestrator, port=0, http=http)
        # Whoever starts it is whom it serves: keys and certificates are for others.
        security = dataclasses.replace(config.security, public=PublicSecurityConfig())
        self._wanted = dataclasses.replace(config, orchestrator=orchestrator, security=security)
        self._pass_line_on = on_line or _ignore_line
        self._ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.address = ""
        """The `host:port` of the public API."""
        self.http_url = ""
        """Where the HTTP API is."""

    def __enter__(self) -> Self:
        """Start. Raises UnavailableError with a service's own words when it does not come up."""
        self._folder = tempfile.TemporaryDirectory(prefix="pilotfish-", ignore_cleanup_errors=True)
        self._launch = prepare(self._wanted, Path(self._folder.name), standalone=True)
        self._waiting = {service for spec in self._launch.specs for service in spec.services}
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._force = asyncio.Event()
        self._supervisor = self._supervise(self._launch)
        self._thread = threading.Thread(target=self._run, name="local-stack")
        self._thread.start()
        try:
            self._ready.result(START_TIMEOUT_S)
        except BaseException as error:
            self.__exit__(None, None, None)
            if isinstance(error, TimeoutError):
                missing = ", ".join(sorted(self._waiting))
                raise UnavailableError(f"{missing} did not start within {START_TIMEOUT_S:g} s") from None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()
        self._folder.cleanup()

    @property
    def config(self) -> Config:
        """What the services were given."""
        return self._launch.config

    def pid(self, service: str) -> int:
        return self._supervisor.pid(service)

    def _supervise(self, launch: Launch) -> Supervisor:
        specs = [
            dataclasses.replace(spec, essential=bool(spec.services), restarts_once_ready=False) for spec in launch.specs
        ]
        return Supervisor(specs, environment=launch.environment, on_line=self._on_line, on_ready=self._note_ready)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._supervisor.run(self._stop, self._force))
        except Exception as error:
            # Later on it shows in the calls that fail.
            if not self._ready.done():
                self._ready.set_exception(error)

    def _on_line(self, name: str, line: str) -> None:
        if url := _HTTP_URL.match(line):
            self.http_url = url["url"]
        self._pass_line_on(name, line)

    def _note_ready(self, service: str, address: str) -> None:
        self._waiting.discard(service)
        if service == "orchestrator":
            self.address = address
        if not self._waiting and not self._ready.done():
            self._ready.set_result(None)


def _ignore_line(name: str, line: str) -> None:
    del name, line
