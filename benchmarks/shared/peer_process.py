"""Other systems as arms, each in a process and an environment of its own (peers/worker.py is their side)."""

import contextlib
import json
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pilotfish.bench.measurement import Measurement
from pilotfish.errors import UnavailableError

SEED = 0
"""Seed of sampled answers. It means something else to each peer, so their texts differ."""
START_TIMEOUT_S = 900.0
"""vLLM compiles when it starts."""
ANSWER_TIMEOUT_S = 900.0
STOP_TIMEOUT_S = 20.0
_LOG_TAIL_BYTES = 2000


class Batch(msgspec.Struct, frozen=True):
    """Some prompts, answered. Times count from when the first of them was asked."""

    answers: tuple[Measurement, ...]
    counters: dict[str, float]
    """The peer's own, since it started."""

    @property
    def elapsed_s(self) -> float:
        """Until the last token of all."""
        return max(answer.total_s for answer in self.answers)

    @property
    def num_tokens(self) -> int:
        """Tokens of all answers together."""
        return sum(answer.num_tokens for answer in self.answers)

    @property
    def token_ids(self) -> list[tuple[int, ...]]:
        """Tokens of each answer."""
        return [answer.token_ids for answer in self.answers]


class PeerProcess:
    """`with PeerProcess(...) as peer`: loaded and waiting. Raises UnavailableError with its last words if it ends."""

    def __init__(self, name: str, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self.facts: dict[str, Any] = {}
        """What it told about itself when it was ready."""
        self._argv = argv
        self._environment = environment

    def __enter__(self) -> "PeerProcess":
        self._log = tempfile.TemporaryFile()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._log, "text": True}
        self._process = subprocess.Popen(self._argv, env=self._environment, encoding="utf-8", **pipes)
        try:
            self.facts = json.loads(self._receive(START_TIMEOUT_S))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()  # it ends when there is nothing more to read
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def ask(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_tokens: int,
        mode: str = "",
        temperature: float = 0.0,
        concurrency: int = 1,
    ) -> Batch:
        """Answers to all prompts (token ids each); concurrency: so many at once."""
        request = {
            "prompts": [list(prompt) for prompt in prompts],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seed": SEED,
            "mode": mode,
            "concurrency": concurrency,
        }
        with contextlib.suppress(BrokenPipeError):  # it has ended, which is seen below
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return msgspec.json.decode(self._receive(ANSWER_TIMEOUT_S), type=Batch)

    def _receive(self, timeout_s: float) -> str:
        """Its next line; one that says nothing for so long is killed."""
        timer = threading.Timer(timeout_s, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            self._process.wait(STOP_TIMEOUT_S)
            self._log.seek(0)
            last_words = self._log.read()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
            raise UnavailableError(f"{self.name} ended with exit code {self._process.returncode}: {last_words}")
        return line


class PeerArm:
    """One mode of a peer."""

    def __init__(self, peer: PeerProcess, mode: str, temperature: float) -> None:
        """temperature: 0 is greedy; above, its texts are not ours."""
        self.name = f"{peer.name} {mode}"
        self._peer = peer
        self._mode = mode
        self._temperature = temperature

    def answer(self, prompt_token_ids: Sequence[int], *, max_tokens: int) -> Measurement:
        """Answer once. Raises PilotfishError."""
        batch = self._peer.ask(
            [prompt_token_ids], max_tokens=max_tokens, mode=self._mode, temperature=self._temperature
        )
        return batch.answers[0]
