"""Options of every gRPC channel and server of the project."""

from __future__ import annotations

import grpc.aio

from pilotfish.config import PublicSecurityConfig

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""A frame carries whole prompts for many sequences; refusals by size are made above, with a clear message."""

KEEPALIVE_TIME_MS = 2000
"""A silent connection between services is pinged this often."""
KEEPALIVE_TIMEOUT_MS = 1000

PUBLIC_KEEPALIVE_TIME_MS = 10_000
"""A silent connection between a client and the orchestrator is pinged this often."""
PUBLIC_KEEPALIVE_TIMEOUT_MS = 10_000
"""A client may be far away, or busy: within one second a client of 1,000 streams had not answered a ping (measured),
and its connection was closed with all of them."""


def _keepalive(time_ms: int, timeout_ms: int) -> tuple[tuple[str, int], ...]:
    return (
        ("grpc.keepalive_time_ms", time_ms),
        ("grpc.keepalive_timeout_ms", timeout_ms),
        # Without it a frozen peer was found after 62 s, with it after 3 s (measured, grpcio 1.85).
        ("grpc.http2.ping_timeout_ms", timeout_ms),
        ("grpc.http2.max_pings_without_data", 0),
    )


def _max_pending(num_calls: int) -> tuple[tuple[str, int], ...]:
    """Calls that wait to be taken in; gRPC ends others as CANCELLED. What is too much is for our own admission to say,
    which queues, and refuses with a hint: with gRPC's own 1,000 of 3,000 at once 633 end (measured, grpcio 1.85)."""
    names = ("grpc.server.max_pending_requests", "grpc.server.max_pending_requests_hard_limit")
    return tuple((name, num_calls) for name in names)


_ANY_NUMBER = 2**31 - 1
_KEEPALIVE = _keepalive(KEEPALIVE_TIME_MS, KEEPALIVE_TIMEOUT_MS)
_PUBLIC_KEEPALIVE = _keepalive(PUBLIC_KEEPALIVE_TIME_MS, PUBLIC_KEEPALIVE_TIMEOUT_MS)
_MESSAGE_SIZES: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)

_DIALLING: tuple[tuple[str, int], ...] = (
    *_MESSAGE_SIZES,
    # The services live on a private network: a proxy of the environment is for something else.
    ("grpc.enable_http_proxy", 0),
    # A replica that comes back is dialled at once, not after the backoff of an earlier channel.
    ("grpc.use_local_subchannel_pool", 1),
)
_LISTENING: tuple[tuple[str, int], ...] = (
    *_MESSAGE_SIZES,
    # Clients ping every KEEPALIVE_TIME_MS: that is no abuse.
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    *_max_pending(_ANY_NUMBER),
    # A second server on the port is an error, not a second listener that gets half the calls.
    ("grpc.so_reuseport", 0),
)

CHANNEL_OPTIONS = (*_KEEPALIVE, *_DIALLING)
"""Options of a channel between services."""
PUBLIC_CHANNEL_OPTIONS = (*_PUBLIC_KEEPALIVE, *_DIALLING)
"""Options of a channel from a client to the orchestrator."""
SERVER_OPTIONS = (*_KEEPALIVE, *_LISTENING)
"""Options of a replica's server."""
PUBLIC_SERVER_OPTIONS = (*_PUBLIC_KEEPALIVE, *_LISTENING)
"""Options of the orchestrator's server, but for what strangers may send."""

_HANDSHAKE_TIMEOUT_MS = 10_000
"""A client that connects and says nothing more is let go; gRPC's own patience is two minutes."""


def public_server_options(
    limits: PublicSecurityConfig, *, max_message_bytes: int, max_pending: int
) -> tuple[tuple[str, int], ...]:
    """Options of the orchestrator's server. Larger messages are refused before they are read, with RESOURCE_EXHAUSTED.
    max_pending: calls that wait to be taken in, 16 kB each (measured)."""
    ours = (("grpc.max_receive_message_length", max_message_bytes), *_max_pending(max_pending))
    names = {name for name, _ in ours}
    return (
        *(option for option in PUBLIC_SERVER_OPTIONS if option[0] not in names),
        *ours,
        # Of a call whose message is not being read 64 KiB are taken. Else gRPC takes 4 MiB of each, and after a while
        # whole messages: 400 MB of 100 calls that nobody reads (measured, grpcio 1.85).
        ("grpc.http2.bdp_probe", 0),
        # Above the first gRPC refuses more and more, above the second everything.
        ("grpc.max_metadata_size", limits.max_header_bytes),
        ("grpc.absolute_max_metadata_size", limits.max_header_bytes),
        ("grpc.max_concurrent_streams", limits.grpc_max_streams),
        ("grpc.max_allowed_incoming_connections", limits.max_connections),
        # Calls that are being answered then go on for as long as they take.
        ("grpc.max_connection_age_ms", round(1000 * limits.grpc_max_connection_age_s)),
        ("grpc.max_connection_idle_ms", round(1000 * limits.grpc_max_connection_idle_s)),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
    )


def open_channel(address: str) -> grpc.aio.Channel:
    """A plain-text channel to a service at host:port; connects when it is first used."""
    return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
