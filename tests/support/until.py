"""Waiting for what has no event."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool]) -> None:
    """Something happens elsewhere, on this event loop or not; the test's own timeout bounds it."""
    while not condition():  # noqa: ASYNC110  # see the module
        await asyncio.sleep(0.002)
