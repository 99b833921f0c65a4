"""How long a silent peer is waited for."""

import pytest

from pilotfish.rpc.channel import CHANNEL_OPTIONS, PUBLIC_CHANNEL_OPTIONS, PUBLIC_SERVER_OPTIONS, SERVER_OPTIONS


def patience_ms(options: tuple[tuple[str, int], ...]) -> int:
    values = dict(options)
    assert values["grpc.http2.ping_timeout_ms"] == values["grpc.keepalive_timeout_ms"]
    return values["grpc.keepalive_time_ms"] + values["grpc.keepalive_timeout_ms"]


@pytest.mark.parametrize("options", [PUBLIC_CHANNEL_OPTIONS, PUBLIC_SERVER_OPTIONS])
def test_a_client_may_be_far_away_or_busy(options: tuple[tuple[str, int], ...]) -> None:
    assert dict(options)["grpc.http2.ping_timeout_ms"] >= 10_000
    assert patience_ms(options) <= 20_000


@pytest.mark.parametrize("options", [SERVER_OPTIONS, PUBLIC_SERVER_OPTIONS])
def test_a_server_bears_the_pings_of_both_kinds(options: tuple[tuple[str, int], ...]) -> None:
    interval_ms = dict(options)["grpc.http2.min_ping_interval_without_data_ms"]
    for channel in (CHANNEL_OPTIONS, PUBLIC_CHANNEL_OPTIONS):
        assert dict(channel)["grpc.keepalive_time_ms"] > interval_ms
