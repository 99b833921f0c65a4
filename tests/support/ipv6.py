"""Whether tests can listen on IPv6."""

import socket


def has_ipv6() -> bool:
    """Whether this machine has IPv6's loopback address."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True
