"""An event loop on a thread, for servers beside a test that blocks."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any


class LoopThread:
    """Runs from its making until `close`."""

    def __init__(
        self,
        *,
        timeout_s: float = 300,
        make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
        name: str = "loop",
    ) -> None:
        """timeout_s: of one call."""
        self._timeout_s = timeout_s
        self._loop = make_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What the coroutine returns. Raises what it does, and TimeoutError."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(self._timeout_s)

    def close(self) -> None:
        """Ends what a call that has timed out left running: uvloop would wait for its sockets for ever."""
        self.run(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
