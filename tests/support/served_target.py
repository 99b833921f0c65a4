"""A target of the test's own process, on an event loop beside the test."""

import socket
from pathlib import Path
from typing import Any, Self

from pilotfish.config import config_from_dict
from pilotfish.engine.process.factory import build_engine
from pilotfish.rpc.link_security import OPEN_LINKS, LinkSecurity
from pilotfish.rpc.replica.server import ReplicaServer
from pilotfish.rpc.target_frames import TargetFrames
from tests.support.loop_thread import LoopThread
from tests.support.threaded_engine import ThreadedEngine


class ServedTarget:
    """Serves a model folder in float32 as long as its block lasts."""

    def __init__(
        self, folder: Path, *, security: LinkSecurity = OPEN_LINKS, kv_cache_tokens: int = 4096, **target: Any
    ) -> None:
        """target: further keys of the configuration's section."""
        engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": kv_cache_tokens, "dtype": "float32"}
        section = {"model": str(folder), "engine": engine, **target}
        self._config = config_from_dict({"target": section, "cache_dir": str(folder.parent / "cache")})
        self._security = security
        self._loop = LoopThread()
        self._server: ReplicaServer | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.close()

    def start(self) -> None:
        self._server = self._loop.run(self._start())

    def stop(self) -> None:
        """Everything that was open there is lost. May be stopped already."""
        if self._server is not None:
            self._loop.run(self._server.drain_and_stop(0))
        self._server = None

    async def _start(self) -> ReplicaServer:
        engine = ThreadedEngine(build_engine(self._config, "target"))
        return await ReplicaServer.start(
            TargetFrames(), engine, host="127.0.0.1", port=self._port, port_setting="none", security=self._security
        )
