"""The start of a replica whose ranks run under somebody else: it ends as soon as one of them does. Torch-free."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

from pilotfish.errors import UnavailableError

T = TypeVar("T")

_REASON_GRACE_S = 5.0
"""Time to wait after a rank's end: it has mostly reported the reason to rank 0."""


async def start_beside_ranks(
    start: Coroutine[Any, Any, T], rank_ends: Sequence[Awaitable[int]], *, grace_s: float = _REASON_GRACE_S
) -> T:
    """What `start`, the start of rank 0, returns. It is cancelled when a rank ends before it is done.

    rank_ends: those of ranks 1, 2, ...; each gives the status of the rank's process when that ends, and raises when
    whoever runs the process cannot.
    Raises: what start raises; UnavailableError that names the rank which ended.
    """
    starting = asyncio.ensure_future(start)
    ends = [asyncio.ensure_future(end) for end in rank_ends]
    try:
        await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            await asyncio.wait([starting], timeout=grace_s)
        if not starting.done():
            rank = next(rank for rank, end in enumerate(ends, start=1) if end.done())
            raise UnavailableError(
                f"rank {rank} of {len(ends) + 1} {_described(ends[rank - 1])} before it was ready; its log says why"
            )
        return await starting
    finally:
        for future in (starting, *ends):
            future.cancel()
        await asyncio.gather(starting, *ends, return_exceptions=True)


def _described(end: asyncio.Future[int]) -> str:
    if error := end.exception():
        # Ray's errors go on for pages.
        first_line = str(error).strip().partition("\n")[0]
        return f"could not be run ({type(error).__name__}: {first_line})"
    return f"ended with status {end.result()}"
