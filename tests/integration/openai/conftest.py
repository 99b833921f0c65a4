"""An orchestrator with its HTTP API on a thread of its own, so that blocking clients can be used."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
import uvloop

from orchestrator.server import OrchestratorServer
from pilotfish.config import Config, config_from_dict
from pilotfish.emulation.factory import start_emulated_engine
from pilotfish.engine.process.client import EngineClient
from pilotfish.engine.process.factory import build_engine
from target_service.server import start_target
from tests.support.byte_tokenizer import VOCAB_SIZE, byte_backend
from tests.support.loop_thread import LoopThread
from tests.support.threaded_engine import ThreadedEngine
from tests.support.tiny_llama import tiny_llama

CHAT_TEMPLATE = "{% for message in messages %}{{ message['role'] }}:{{ message['content'] }}|{% endfor %}assistant:"


class ServerThread:
    """`with ServerThread(config, make_engine) as server`: it answers on server.url."""

    def __init__(self, config: Config, make_engine: Callable[[], EngineClient], **orchestrator: Any) -> None:
        """orchestrator: keys of its section."""
        self._config = config
        self._section = orchestrator
        self._make_engine = make_engine
        self.orchestrator: OrchestratorServer
        self.engine: EngineClient

    def __enter__(self) -> ServerThread:
        self._loop = LoopThread(make_loop=uvloop.new_event_loop, name="orchestrator")
        self.call(self._start())
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.call(self._stop())
        finally:
            self._loop.close()

    @property
    def url(self) -> str:
        return self.orchestrator.http_url

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something on the server's event loop."""
        return self._loop.run(work)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """For something that happens on the server's event loop; the test's own timeout bounds it."""

        async def wait() -> None:
            while not condition():  # noqa: ASYNC110  # what is awaited has no event that a test could see
                await asyncio.sleep(0.001)

        self.call(wait())

    async def _start(self) -> None:
        self.engine = self._make_engine()
        self._target = await start_target(self._config, engine=self.engine)
        section = {"port": 0, "target_addresses": [self._target.address], **self._section}
        config = config_from_dict(
            {
                "target": {"model": self._config.target.model},
                "orchestrator": section,
                "emulation": {"profile": self._config.emulation.profile},
                "cache_dir": self._config.cache_dir,
            }
        )
        self.orchestrator = await OrchestratorServer.start(config)
        await self.orchestrator.wait_ready(60)

    async def stop_target(self) -> None:
        await self._target.drain_and_stop(0)

    async def _stop(self) -> None:
        await self.orchestrator.drain_and_stop(0)
        await self.stop_target()


@pytest.fixture(scope="session")
def real_server(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    """A real engine with a tiny model: log-probabilities, penalties and seeds mean something."""
    folder = tmp_path_factory.mktemp("http") / "tiny"
    shutil.copytree(target_folder, folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))
    # Calls have line ends, which the vocabulary has no token for: take that of a character that nobody needs.
    tokenizer = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(tokenizer.replace('"~"', '"\u010a"'))
    with tiny_server(folder, tmp_path_factory.mktemp("cache")) as server:
        yield server


@pytest.fixture(scope="session")
def bytes_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerThread]:
    """As real_server, over tokens that are single bytes or straddle characters; some ids stand for no token at all."""
    folder = tmp_path_factory.mktemp("bytes")
    tiny_llama(vocab_size=VOCAB_SIZE).to(torch.bfloat16).save_pretrained(folder)
    byte_backend().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))
    with tiny_server(folder, tmp_path_factory.mktemp("cache")) as server:
        yield server


@contextlib.contextmanager
def tiny_server(folder: Path, cache_dir: Path) -> Iterator[ServerThread]:
    """A real engine with the tiny model in a folder, whose token 0 ends an answer."""
    threads = torch.get_num_threads()
    # Room for tools, which take a token for each character; and grammars need an end.
    (folder / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((folder / "config.json").read_text())
    config |= {"max_position_embeddings": 2048, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 4096}
    service = {"model": str(folder), "port": 0, "engine": engine}
    settings = config_from_dict({"target": service, "cache_dir": str(cache_dir)})
    with ServerThread(settings, lambda: ThreadedEngine(build_engine(settings, "target"))) as server:
        yield server
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ServerThread]:
    """Starts one with an emulated engine: as fast as wished, and it counts what it holds. Takes keys of the
    orchestrator's section."""
    config = config_from_dict(
        {
            "target": {"port": 0},
            "emulation": {"profile": "instant"},
            "cache_dir": str(tmp_path_factory.mktemp("emulated-cache")),
        }
    )
    return lambda **orchestrator: ServerThread(config, lambda: start_emulated_engine(config, "target"), **orchestrator)


@pytest.fixture(scope="session")
def emulated_server(start_server: Callable[..., ServerThread]) -> Iterator[ServerThread]:
    with start_server() as server:
        yield server


def client_of(server: ServerThread) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture
def real_client(real_server: ServerThread) -> Iterator[openai.OpenAI]:
    with contextlib.closing(client_of(real_server)) as client:
        yield client


@pytest.fixture
def emulated_client(emulated_server: ServerThread) -> Iterator[openai.OpenAI]:
    with contextlib.closing(client_of(emulated_server)) as client:
        yield client


@pytest.fixture
def bytes_client(bytes_server: ServerThread) -> Iterator[openai.OpenAI]:
    with contextlib.closing(client_of(bytes_server)) as client:
        yield client
