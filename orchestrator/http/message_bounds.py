"""What of an HTTP message is not its body: how much of it is taken."""

from __future__ import annotations

MAX_FIELDS = 128
"""Headers and trailers of a request; Apache and Tomcat take 100. Each is looked through for every header that is
asked for."""


class BadMessageError(Exception):
    """A request that is not taken, whoever sends it. Its text is for the client."""


class MessageBounds:
    """Counts a message's request line, fields, chunk sizes and chunk extensions.

    Together they may have max_bytes, and with chunks as many again as the body has: what sends more sends no body.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.begin()

    def begin(self) -> None:
        """The next message."""
        self._num_left = self._max_bytes
        self._num_field_bytes = 0
        self._num_fields = 0

    def read(self, num_bytes: int) -> None:
        """Bytes of whatever kind. Call `check` when they are parsed."""
        self._num_left -= num_bytes

    def body(self, num_bytes: int) -> None:
        """Some of the bytes that were read were the body's."""
        self._num_left = min(self._max_bytes, self._num_left + 2 * num_bytes)

    def check(self) -> None:
        """Raises BadMessageError."""
        if self._num_left < 0:
            raise BadMessageError("the request's head, or what its chunks have beside the body, is too large")

    def field(self, num_bytes: int) -> None:
        """A header or trailer, or the request's target. Raises BadMessageError."""
        self._num_fields += 1
        self._num_field_bytes += num_bytes
        if self._num_field_bytes > self._max_bytes:
            raise BadMessageError("the request's head is too large")
        if self._num_fields > MAX_FIELDS:
            raise BadMessageError(f"the request has more than {MAX_FIELDS} headers")
