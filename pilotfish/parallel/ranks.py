"""Starts the ranks of a replica, or waits for those that Ray has started, and gets all of them going. Rank 0's side."""

from __future__ import annotations

import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from pilotfish.errors import InternalError, UnavailableError
from pilotfish.parallel.channel import RankChannel, accept_ranks, listen
from pilotfish.parallel.decoder import ParallelDecoder
from pilotfish.parallel.meeting import MEETING_PREFIX, rank_command
from pilotfish.parallel.messages import Loaded, Setup
from pilotfish.parallel.rank import load_rank
from pilotfish.parallel.rehearsal import common_abilities
from pilotfish.parallel.watch import end_process, watch

START_TIMEOUT_S = 300.0
_STORE = "store"


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where ranks meet."""

    folder: Path
    listener: socket.socket
    is_ours: bool
    """Whether rank 0 starts the others; else somebody else has, in this folder."""


@contextmanager
def meet(folder: Path | None) -> Iterator[Meeting]:
    """Listen for ranks. Begin with it: those that run already give up where nobody listens, and wait for as long as
    the model is downloaded where somebody does.

    folder: where ranks that somebody else has started look for this one; None: this one starts them.
    """
    with tempfile.TemporaryDirectory(prefix=MEETING_PREFIX) as own:
        place = folder or Path(own)
        with listen(place) as listener:
            yield Meeting(place, listener, folder is None)


def start_ranks(setup: Setup, meeting: Meeting) -> ParallelDecoder:
    """Rank 0's decoder over all ranks, each with its part loaded. Those it starts are processes that end with this one.
    Once all are loaded the loss of a rank ends this process.

    Raises: the PilotfishError that a rank failed with; UnavailableError when one does not come up.
    """
    with _ranks(setup.num_ranks, meeting) as (channel, processes):
        channel.broadcast(setup)
        part = load_rank(setup, 0)
        abilities = [part.rehearse()]
        for answer in channel.collect():
            if not isinstance(answer, Loaded):
                raise InternalError(f"a rank that was to load answered {answer}")
            abilities.append(answer.abilities)

        def on_loss(ranks: list[int]) -> NoReturn:
            end_process(_loss(ranks, setup.num_ranks, processes))

        # Before they meet: there a lost one would be waited for for `group.TIMEOUT`.
        watch(channel, on_loss)
        joined = ParallelDecoder(part, channel, common_abilities(abilities), Path(setup.folder), on_loss)
        joined.join(meeting.folder / _STORE)
    return joined


def _loss(ranks: list[int], num_ranks: int, processes: list[subprocess.Popen[bytes]]) -> str:
    """What is lost, for people."""
    names = [f"rank {rank}" + (f" (process {processes[rank - 1].pid})" if processes else "") for rank in ranks]
    return f"{' and '.join(names)} of {num_ranks} ended: this replica ends with it"


@contextmanager
def _ranks(num_ranks: int, meeting: Meeting) -> Iterator[tuple[RankChannel, list[subprocess.Popen[bytes]]]]:
    """The connections and what was started, which ends if the block fails."""
    processes = [_spawn(meeting.folder, rank) for rank in range(1, num_ranks)] if meeting.is_ours else []
    try:
        yield accept_ranks(meeting.listener, num_ranks, START_TIMEOUT_S, lambda: _check(processes)), processes
    except BaseException:
        for process in processes:
            process.kill()
            process.wait()
        raise


def _spawn(folder: Path, rank: int) -> subprocess.Popen[bytes]:
    """A rank that ends when its connection to this process does. Its standard error is ours."""
    return subprocess.Popen(rank_command(folder, rank), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def _check(processes: list[subprocess.Popen[bytes]]) -> None:
    for rank, process in enumerate(processes, start=1):
        if (status := process.poll()) is not None:
            raise UnavailableError(f"rank {rank} ended with status {status} before it was ready; its log says why")
