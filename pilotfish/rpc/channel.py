"""Options of every gRPC channel and server of the project."""

from __future__ import annotations

import grpc.aio

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""A frame carries whole prompts for many sequences; refusals by size are made above, with a clear message."""

KEEPALIVE_TIME_MS = 2000
"""A silent connection is pinged this often."""
KEEPALIVE_TIMEOUT_MS = 1000

_KEEPALIVE: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    # Without it a frozen peer was found after 62 s, with it after 3 s (measured, grpcio 1.85).
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
)
_MESSAGE_SIZES: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *_KEEPALIVE,
    *_MESSAGE_SIZES,
    # The services live on a private network: a proxy of the environment is for something else.
    ("grpc.enable_http_proxy", 0),
    # A replica that comes back is dialled at once, not after the backoff of an earlier channel.
    ("grpc.use_local_subchannel_pool", 1),
)

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *_KEEPALIVE,
    *_MESSAGE_SIZES,
    # Clients ping every KEEPALIVE_TIME_MS: that is no abuse.
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    # A second server on the port is an error, not a second listener that gets half the calls.
    ("grpc.so_reuseport", 0),
)


def open_channel(address: str) -> grpc.aio.Channel:
    """A plain-text channel to host:port; connects when it is first used."""
    return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
