"""The process of a rank from 1 on: `python -m pilotfish.parallel.rank --folder FOLDER --rank RANK`.

It connects to rank 0 in the folder, loads its part of the model and does what rank 0 orders. It ends when rank 0
does, whatever it is computing.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, assert_never

import torch

from pilotfish.config import EngineConfig
from pilotfish.errors import InternalError, PilotfishError
from pilotfish.models.compiled import can_compile, compile_layers
from pilotfish.models.decoder_transformers import TransformersDecoder
from pilotfish.models.device import DTYPES, enter_device, require_fp8
from pilotfish.models.gpu_factory import build_gpu_decoder
from pilotfish.models.gpu_memory import measure_kv_room
from pilotfish.models.scaled_linear import weight_format_of
from pilotfish.parallel.channel import RankPeer, dial
from pilotfish.parallel.group import ProcessGroup
from pilotfish.parallel.messages import (
    Allocate,
    Failed,
    Forward,
    Join,
    Loaded,
    Measure,
    Measured,
    MoveKV,
    RecordGraphs,
    Setup,
)
from pilotfish.parallel.rehearsal import RankPart
from pilotfish.parallel.sharded_model import load_shard
from pilotfish.parallel.step_codec import StepUnpacker
from pilotfish.parallel.watch import end_process, watch
from pilotfish.telemetry.logs import configure_logging

logger = logging.getLogger(__name__)

DIAL_TIMEOUT_S = 300.0
"""Wait for rank 0 to listen: under Ray the other ranks start before it. It listens before it downloads anything."""
_HANG_UP_S = 1.0


def load_rank(setup: Setup, rank: int) -> RankPart:
    """This rank's part of the model. Raises PilotfishError kinds."""
    engine = setup.engine
    torch.set_num_threads(engine.num_threads)
    device = rank_device(engine.device, rank, setup.num_ranks)
    group = ProcessGroup(rank, setup.num_ranks, device, in_rank_order=engine.deterministic)
    compiles = engine.compile and device.type == "cuda" and can_compile(device)
    if engine.quantization == "fp8":
        require_fp8(device)
    dtype, weight_format = DTYPES[engine.dtype], weight_format_of(engine.quantization)
    model = load_shard(Path(setup.folder), group, dtype, device, weight_format)
    uncompile: Callable[[], None] | None = None
    if device.type == "cuda":
        # Of quantised weights the layers' alone: a part of the output projection is a linear like any other.
        plain = replace(engine, quantization="none", compile=False)
        decoder = build_gpu_decoder(model, plain, device, max_context_tokens=engine.max_context_tokens)
        if compiles:
            # A rank that ran a layer once more would add its part once more than the others do.
            uncompile = compile_layers(model, falls_back=False)
    else:
        decoder = TransformersDecoder(
            model, deterministic=engine.deterministic, max_context_tokens=engine.max_context_tokens
        )
    return RankPart(decoder, group, uncompile)


def rank_device(device: str, rank: int, num_ranks: int) -> torch.device:
    """The device of a rank: its GPU by number where it sees those of all ranks, the only one under Ray."""
    if torch.device(device).type != "cuda":
        return torch.device(device)
    chosen = torch.device("cuda", rank if torch.cuda.device_count() >= num_ranks else 0)
    enter_device(chosen)
    return chosen


def serve(peer: RankPeer, part: RankPart, engine: EngineConfig) -> None:
    """Carry out orders for ever. Raises EOFError or OSError when rank 0 is gone."""
    decoder, steps = part.decoder, StepUnpacker()
    while True:
        order = peer.receive()
        match order:
            case Forward():
                decoder.forward(steps.unpack(order))
            case MoveKV():
                decoder.move_kv(order.moves)
            case Allocate():
                decoder.allocate(order.num_blocks)
            case RecordGraphs():
                decoder.record_graphs()
            case Measure():
                peer.send(Measured(measure_kv_room(decoder, engine)))
            case Join():
                part.agree(order.abilities)
                part.group.connect(Path(order.store))
            case Setup():
                raise InternalError("a rank is set up once")
            case _:
                assert_never(order)


def run(folder: Path, rank: int) -> None:
    """Be a rank until rank 0 ends. Ends the process at any error."""
    peer: RankPeer | None = None
    try:
        peer = dial(folder, rank, DIAL_TIMEOUT_S)
        # Quietly: rank 0 has said why, or was asked to end.
        watch(peer, lambda _: _end_quietly(folder))
        serve(peer, *start(peer, rank))
    except (EOFError, ConnectionError):
        _end_quietly(folder)
    except Exception as error:
        if peer is not None and peer.wait_for_loss(_HANG_UP_S):
            _end_quietly(folder)  # it is the loss of another rank that has failed here, and rank 0 has said so
        logger.exception("rank %d failed", rank)
        end_process(f"rank {rank} ends: {type(error).__name__}: {error}")


def _end_quietly(folder: Path) -> NoReturn:
    """End without rank 0. A meeting place that is still there is of no use to anybody."""
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def start(peer: RankPeer, rank: int) -> tuple[RankPart, EngineConfig]:
    """Load what rank 0 says, and report how that went. Raises PilotfishError kinds."""
    setup = peer.receive()
    if not isinstance(setup, Setup):
        raise InternalError(f"the first order is {type(setup).__name__}")
    configure_logging(setup.log_level, setup.log_format, f"rank_{rank}")
    try:
        part = load_rank(setup, rank)
    except PilotfishError as error:
        peer.send(Failed(type(error).__name__, str(error)))
        raise
    peer.send(Loaded(part.rehearse()))
    return part, setup.engine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where rank 0 listens")
    parser.add_argument("--rank", type=int, required=True, help="from 1 on")
    arguments = parser.parse_args()
    # Ctrl-C reaches the whole process group; rank 0's front decides when its engine ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run(arguments.folder, arguments.rank)


if __name__ == "__main__":
    main()
