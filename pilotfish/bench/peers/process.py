"""Other systems as arms, each in a process and, if need be, an environment of its own."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from pilotfish.bench.machine import this_machine
from pilotfish.bench.measurement import Measurement
from pilotfish.config import EngineConfig, environment
from pilotfish.errors import DeadlineExceededError, UnavailableError

STOP_TIMEOUT_S = 20.0
_LOG_TAIL_BYTES = 600


class Batch(msgspec.Struct, frozen=True):
    """Some prompts, answered. Times count from when the first of them was asked."""

    answers: tuple[Measurement, ...]
    counters: dict[str, float] = {}
    """The peer's own, since it started."""

    @property
    def elapsed_s(self) -> float:
        """Until the last token of all."""
        return max(answer.total_s for answer in self.answers)

    @property
    def num_tokens(self) -> int:
        """Of all answers together."""
        return sum(answer.num_tokens for answer in self.answers)

    @property
    def token_ids(self) -> list[tuple[int, ...]]:
        """Of each answer."""
        return [answer.token_ids for answer in self.answers]


class _Reply(Batch, frozen=True):
    """Anything that a peer says."""

    answers: tuple[Measurement, ...] = ()
    ready: dict[str, Any] = {}
    error: str = ""
    """Empty: it is none."""


class PeerProcess:
    """`with PeerProcess(...) as peer`: loaded and waiting; see worker.py for what it speaks."""

    def __init__(
        self, name: str, argv: Sequence[str], *, environment: Mapping[str, str], start_timeout_s: float
    ) -> None:
        self.name = name
        self.facts: dict[str, Any] = {}
        """What it told about itself when it was ready."""
        self._argv = argv
        self._environment = environment
        self._start_timeout_s = start_timeout_s
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        """Start and wait until it is ready. Raises UnavailableError with its last words when it does not get there."""
        self._log = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=dict(self._environment),
                text=True,
                encoding="utf-8",
            )
        except OSError as error:
            self._log.close()
            raise UnavailableError(f"{self.name} cannot be started: {self._argv[0]}: {error.strerror}") from None
        self._reader = threading.Thread(target=self._read, name=f"peer-{self.name}")
        self._reader.start()
        try:
            self.facts = self._receive(self._start_timeout_s).ready
        except BaseException:
            self._stop(kill=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an error it may be in the middle of an answer that nobody wants any more.
        self._stop(kill=error is not None)

    def _stop(self, *, kill: bool) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if kill:
            self._process.kill()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()  # it ends when there is nothing more to read
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        self._log.close()

    def ask(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_tokens: int,
        mode: str,
        timeout_s: float,
        temperature: float = 0.0,
        concurrency: int = 1,
    ) -> Batch:
        """Answers to all prompts (token ids each). Raises UnavailableError or DeadlineExceededError.

        concurrency: at once, of a peer that can answer several.
        """
        assert self._process.stdin is not None
        request = {
            "prompts": [list(prompt) for prompt in prompts],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "mode": mode,
            "concurrency": concurrency,
        }
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise UnavailableError(f"{self.name} ended: {self._last_words()}") from None
        return self._receive(timeout_s)

    def _receive(self, timeout_s: float) -> _Reply:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise DeadlineExceededError(f"{self.name} did not answer within {timeout_s:g} s") from None
        if not line:
            self._lines.put("")  # for whoever asks next
            raise UnavailableError(f"{self.name} ended: {self._last_words()}")
        reply = msgspec.json.decode(line, type=_Reply)
        if reply.error:
            raise UnavailableError(f"{self.name}: {reply.error}")
        return reply

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _last_words(self) -> str:
        self._process.wait(STOP_TIMEOUT_S)
        self._log.seek(0, 2)
        self._log.seek(max(0, self._log.tell() - _LOG_TAIL_BYTES))
        return self._log.read().decode(errors="replace").strip() or f"exit code {self._process.returncode}"


class PeerArm:
    """One mode of a peer."""

    def __init__(self, peer: PeerProcess, mode: str, *, timeout_s: float, temperature: float = 0.0) -> None:
        """temperature: 0 is greedy; above, its texts are not ours."""
        self.name = f"{peer.name} {mode}"
        self._temperature = temperature
        self._peer = peer
        self._mode = mode
        self._timeout_s = timeout_s

    def answer(self, prompt_token_ids: Sequence[int], *, max_tokens: int) -> Measurement:
        """Answer once. Raises PilotfishError."""
        batch = self._peer.ask(
            [prompt_token_ids],
            max_tokens=max_tokens,
            mode=self._mode,
            timeout_s=self._timeout_s,
            temperature=self._temperature,
        )
        return batch.answers[0]


NAME = "transformers"
START_TIMEOUT_S = 300.0


def transformers_process(model: Path, engine: EngineConfig, assistant: Path | None = None) -> PeerProcess:
    """transformers with the target's weights, as many threads and the same precision; not started yet."""
    num_threads = engine.num_threads or this_machine().cores
    argv = [sys.executable, "-m", "pilotfish.bench.peers.transformers_worker", "--model", str(model)]
    argv += ["--dtype", engine.dtype, "--threads", str(num_threads)]
    if assistant is not None:
        argv += ["--assistant", str(assistant)]
    variables = {"OMP_NUM_THREADS": str(num_threads), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    return PeerProcess(NAME, argv, environment=environment(variables), start_timeout_s=START_TIMEOUT_S)


def transformers_arms(process: PeerProcess, *, timeout_s: float, temperature: float = 0.0) -> list[PeerArm]:
    """One arm for each mode that the started process has: plain, lookup, and assisted with an assistant."""
    return [PeerArm(process, mode, timeout_s=timeout_s, temperature=temperature) for mode in process.facts["modes"]]
