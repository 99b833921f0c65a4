"""A client that costs little: raw sockets, and the moment at which each event came."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

_EVENT = b"data: "
_DONE = b"data: [DONE]"


@dataclass
class Streamed:
    """One streamed answer."""

    start_ns: int
    status: int = 0
    arrivals_ns: list[int] = field(default_factory=list)
    """Of events with text."""
    is_done: bool = False

    @property
    def time_to_first_token_s(self) -> float:
        return (self.arrivals_ns[0] - self.start_ns) / 1e9

    @property
    def duration_s(self) -> float:
        return (self.arrivals_ns[-1] - self.start_ns) / 1e9


async def stream_completion(url: str, body: dict[str, Any]) -> Streamed:
    """POST /v1/completions with `stream`, on a connection of its own that is open before the clock starts."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 20)
    data = json.dumps({**body, "stream": True}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {place.netloc}\r\ncontent-length: {len(data)}\r\n"
    streamed = Streamed(time.monotonic_ns())
    try:
        writer.write(f"{head}connection: close\r\n\r\n".encode() + data)
        streamed.status = int((await reader.readline()).split()[1])
        while line := await reader.readline():
            if line.startswith(_EVENT):
                now_ns = time.monotonic_ns()
                if line.startswith(_DONE):
                    streamed.is_done = True
                else:
                    streamed.arrivals_ns.append(now_ns)
    finally:
        writer.close()
        await writer.wait_closed()
    return streamed
