"""An orchestrator with its HTTP API on a thread of its own, so that blocking clients can be used."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from pilotfish.config import config_from_dict
from pilotfish.emulation.factory import start_emulated_engine
from pilotfish.engine.process.factory import build_engine
from tests.support.stack import StackThread
from tests.support.threaded_engine import ThreadedEngine

CHAT_TEMPLATE = (
    "{% if mood %}{{ mood }}:{% endif %}"
    "{% for message in messages %}{{ message['role'] }}:{{ message['content'] }}|{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


@pytest.fixture(scope="session")
def real_server(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackThread]:
    """A real engine with a tiny model: log-probabilities, penalties and seeds mean something."""
    folder = tmp_path_factory.mktemp("http") / "tiny"
    shutil.copytree(target_folder, folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))
    # Calls have line ends, which the vocabulary has no token for: take that of a character that nobody needs.
    tokenizer = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(tokenizer.replace('"~"', '"\u010a"'))
    with tiny_server(folder, tmp_path_factory.mktemp("cache")) as server:
        yield server


@contextlib.contextmanager
def tiny_server(folder: Path, cache_dir: Path) -> Iterator[StackThread]:
    """A real engine with the tiny model in a folder, whose token 0 ends an answer."""
    # Room for tools, which take a token for each character; and grammars need an end.
    (folder / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((folder / "config.json").read_text())
    config |= {"max_position_embeddings": 2048, "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    engine = {"compile": False, "num_threads": 1, "kv_cache_tokens": 4096}
    service = {"model": str(folder), "port": 0, "engine": engine}
    # An answer asked for again comes bit by bit, too.
    alone = {"suffix_shared_tokens": 0}
    settings = config_from_dict({"target": service, "draft": alone, "cache_dir": str(cache_dir)})
    with StackThread(settings, lambda: ThreadedEngine(build_engine(settings, "target"))) as server:
        yield server


@pytest.fixture(scope="session")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., StackThread]:
    """Starts one with an emulated engine: as fast as wished, and it counts what it holds. Takes keys of the
    orchestrator's section."""
    cache = str(tmp_path_factory.mktemp("emulated-cache"))

    def start(**orchestrator: Any) -> StackThread:
        sections = {"emulation": {"profile": "instant"}, "cache_dir": cache, "orchestrator": orchestrator}
        config = config_from_dict(sections)
        return StackThread(config, lambda: start_emulated_engine(config, "target"))

    return start


@pytest.fixture(scope="session")
def emulated_server(start_server: Callable[..., StackThread]) -> Iterator[StackThread]:
    with start_server() as server:
        yield server


def client(server: StackThread) -> openai.OpenAI:
    """Over the server's own connections, which end with it."""
    return openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60, http_client=server.http
    )


@pytest.fixture(scope="session")
def client_of() -> Callable[[StackThread], openai.OpenAI]:
    return client


@pytest.fixture(scope="session")
def real_client(real_server: StackThread) -> openai.OpenAI:
    return client(real_server)


@pytest.fixture(scope="session")
def emulated_client(emulated_server: StackThread) -> openai.OpenAI:
    return client(emulated_server)
