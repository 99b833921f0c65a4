"""Messages survive a byte stream, however it is cut."""

from hypothesis import given
from hypothesis import strategies as st

from pilotfish.engine.process.wire import MessageReader, framed


@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(1, 50))
def test_messages_come_back_however_the_stream_is_cut(messages: list[bytes], num_bytes: int) -> None:
    stream = b"".join(framed(message) for message in messages)
    reader = MessageReader()
    found = []
    for start in range(0, len(stream), num_bytes):
        found += reader.feed(stream[start : start + num_bytes])
    assert found == messages
