"""vLLM in a process and an environment of its own, one way to draft each."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from pilotfish.bench.peer import PeerProcess
from pilotfish.config import environment

Mode = Literal["plain", "ngram", "remote"]
WORKER = "pilotfish.bench.vllm_worker"
ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 900.0
"""vLLM compiles when it starts."""
BATCH_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Batch:
    """Some prompts, answered."""

    answers: list[list[int]]
    elapsed_s: float
    counters: dict[str, float] = field(default_factory=dict)
    """The proposer's, since it started."""

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.answers))


class VllmProcess:
    """`with VllmProcess(...) as vllm`: loaded and waiting."""

    def __init__(
        self,
        python: Path,
        model: Path,
        mode: Mode,
        *,
        context: int,
        threads: int,
        num_draft_tokens: int,
        pilotfish: dict[str, Any] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """python: of vLLM's environment. pilotfish: settings of the proposer. options: more of the worker's."""
        argv = [str(python), "-m", WORKER, "--model", str(model), "--mode", mode, "--context", str(context)]
        argv += ["--num-draft-tokens", str(num_draft_tokens), "--pilotfish", json.dumps(pilotfish or {}), *options]
        cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:threads])
        variables = {
            "PYTHONPATH": str(ROOT),
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": cores,
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
        }
        self.name = f"vllm {mode}"
        self._process = PeerProcess(
            self.name, argv, environment=environment(variables), start_timeout_s=START_TIMEOUT_S
        )

    def __enter__(self) -> Self:
        """Start and wait until it is ready. Raises UnavailableError with its last words."""
        self._process.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.__exit__(kind, error, traceback)

    @property
    def version(self) -> str:
        return str(self._process.facts.get("version", ""))

    def answer(self, prompts: Sequence[Sequence[int]], *, max_tokens: int, concurrency: int) -> Batch:
        """Greedy answers to all prompts. Raises PilotfishError."""
        request = {"prompts": [list(each) for each in prompts], "max_tokens": max_tokens, "concurrency": concurrency}
        return self._process.exchange(request, Batch, timeout_s=BATCH_TIMEOUT_S)
