"""transformers as a peer of a benchmark: its process, its modes."""

from __future__ import annotations

import sys
from pathlib import Path

from pilotfish.bench.machine import this_machine
from pilotfish.bench.peers.process import PeerArm, PeerProcess
from pilotfish.config import EngineConfig, environment

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
