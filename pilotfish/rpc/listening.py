"""Whether an address can be listened on, in words that say what to do."""

from __future__ import annotations

import asyncio
import errno
import socket

from pilotfish.errors import UnavailableError


async def require_free_port(host: str, port: int, setting: str) -> None:
    """Raises UnavailableError when nothing can listen on host:port now. 0: any free port, below 0: none is wanted.

    For before the minutes that loading a model takes; whoever binds later must still be ready to fail.
    setting: configuration key of the port, for the message.
    """
    if port < 0:
        return
    problem: OSError | None = None
    try:
        # A name may have several addresses, and a server is content with one of them.
        for family, kind, protocol, _, address in await asyncio.get_running_loop().getaddrinfo(
            host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            try:
                _bind(family, kind, protocol, address)
            except OSError as error:
                problem = problem or error
            else:
                return
    except socket.gaierror as error:
        problem = error
    assert problem is not None, "getaddrinfo names an address or raises"
    raise UnavailableError(explain(problem, host, port, setting)) from None


def _bind(family: int, kind: int, protocol: int, address: tuple[object, ...]) -> None:
    with socket.socket(family, kind, protocol) as probe:
        # As servers bind: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen(1)


def explain(error: OSError, host: str, port: int, setting: str) -> str:
    """Why nothing can listen on host:port, and what to do. setting: configuration key of the port."""
    where, other = f"cannot listen on {host}:{port}", f"choose another with --set {setting}=PORT"
    if error.errno == errno.EADDRINUSE:
        return f"{where}: the port is in use; stop what uses it (another Pilotfish?) or {other}"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where}: the port needs privileges; {other}"
    return f"{where}: {error.strerror or error}; the host must be an address of this machine (0.0.0.0: all of them)"
