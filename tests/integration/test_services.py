"""The services as processes: ready lines, signals, errors."""

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pilotfish.client.answer import GenerateOptions
from pilotfish.client.async_inference import AsyncInferenceClient
from pilotfish.errors import UnavailableError
from pilotfish.messages import OpenSequence, Proposal, Propose
from pilotfish.types import SamplingParams
from tests.support.byte_tokenizer import save_lookup_folder
from tests.support.peer import RecordingPeer

Process = asyncio.subprocess.Process


@contextlib.asynccontextmanager
async def service(module: str, *settings: str) -> AsyncIterator[Process]:
    """`python -m MODULE --set ...`; killed at the end if it still runs."""
    arguments = [part for setting in settings for part in ("--set", setting)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture
def tokenizer_folder(tmp_path: Path) -> Path:
    save_lookup_folder(tmp_path)
    return tmp_path


async def ready_line(process: Process) -> str:
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    assert line, (await process.communicate())[1].decode()
    return line


def address_of(line: str) -> str:
    found = re.search(r"ready on (\S+:\d+) \(", line)
    assert found is not None, line
    return found.group(1)


async def test_the_draft_service_starts_and_stops_on_sigterm(tokenizer_folder: Path) -> None:
    async with service("draft_service", "draft.port=0", f"draft.model={tokenizer_folder}") as process:
        line = await ready_line(process)
        assert line.startswith("draft_service ready on 127.0.0.1:")
        assert line.endswith(f"(proposer suffix, model {tokenizer_folder.name})\n")
        async with RecordingPeer(address_of(line), "draft") as peer:
            assert (peer.stream.model.vocab_size, peer.stream.model.max_context_tokens) == (50, 64)
            proposal = await peer.ask(
                OpenSequence(1, (1, 2, 3, 4, 1, 2), SamplingParams(temperature=0)), Propose(1, 6, (), 2)
            )
            assert isinstance(proposal, Proposal)
            assert proposal.draft_token_ids == (3, 4)
            process.send_signal(signal.SIGTERM)
            while not (await peer.load()).draining:
                pass
            process.send_signal(signal.SIGTERM)
            await peer.lost.wait()
            assert isinstance(peer.losses[0], UnavailableError)
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert output == b""
    assert b"Traceback" not in errors


async def test_an_orchestrator_says_where_it_listens_and_stops_on_ctrl_c(tmp_path: Path) -> None:
    emulated = "emulation.profile=instant", f"cache_dir={tmp_path}"
    async with service("target_service", "target.port=0", *emulated) as target:
        address = address_of(await ready_line(target))
        settings = "orchestrator.port=0", "orchestrator.http.port=0", f"orchestrator.target_addresses=['{address}']"
        async with service("orchestrator", *settings, *emulated) as process:
            line = await ready_line(process)
            assert re.fullmatch(r"orchestrator ready on \S+ \(model .+, 1 target, 0 draft, http://\S+\)\n", line)
            async with AsyncInferenceClient(address_of(line)) as client:
                summary = await client.follow("abc", GenerateOptions(max_tokens=4), timeout_s=20, on_tokens=print)
                assert summary.num_output_tokens == 4
            process.send_signal(signal.SIGINT)
            output, errors = await process.communicate()
    assert (process.returncode, output) == (0, b"")
    assert b"Traceback" not in errors


async def test_errors_are_one_line() -> None:
    async with service("orchestrator", "orchestrator.prt=1") as process:
        output, errors = await process.communicate()
    lines = errors.decode().splitlines()
    assert process.returncode == 1
    assert output == b""
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert "orchestrator.prt" in lines[0]
