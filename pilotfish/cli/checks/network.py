"""The network: the addresses that `pilotfish up` takes, and proxies that would stand in between."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from pilotfish.cli.checks.finding import CheckFinding, Severity
from pilotfish.cli.preflight import find_running, require_free, require_free_http
from pilotfish.config import Config
from pilotfish.config.fields import address_of
from pilotfish.errors import ConfigError, UnavailableError

LOOPBACK = "127.0.0.1"
ANY_INTERFACE = ("0.0.0.0", "::", "")


def check_network(config: Config) -> Iterator[CheckFinding]:
    """The public address, the HTTP API's, and the environment's proxies."""
    orchestrator = config.orchestrator
    running = orchestrator.port and find_running(address_of(_dialled(orchestrator.host), orchestrator.port))
    if running:
        served = f"Pilotfish {running.version} already serves {running.model_id} there"
        found = f"{address_of(orchestrator.host, orchestrator.port)}: {served}"
        yield CheckFinding("address", Severity.OK, found)
    else:
        yield _address("address", orchestrator.host, orchestrator.port, require_free)
        if orchestrator.http_port >= 0:
            yield _address("http address", orchestrator.http_host, orchestrator.http_port, require_free_http)
    yield check_proxies(_dialled(orchestrator.http_host))


def check_proxies(host: str) -> CheckFinding:
    """Whether HTTP clients on this machine would ask a proxy for the API at `host`. Pilotfish's own links do not."""
    proxies = {scheme: url for scheme, url in urllib.request.getproxies().items() if scheme in ("http", "https", "all")}
    if not proxies:
        return CheckFinding("proxies", Severity.OK, "none in the environment")
    named = ", ".join(f"{scheme}_proxy={_without_password(url)}" for scheme, url in sorted(proxies.items()))
    if urllib.request.proxy_bypass(host):
        return CheckFinding("proxies", Severity.OK, f"{named}; not for {host}")
    advice = f"for OpenAI's and other HTTP clients: export NO_PROXY=localhost,127.0.0.1,{host}"
    found = f"{named} would be asked for the HTTP API at {host} (Pilotfish's own links do not ask it)"
    return CheckFinding("proxies", Severity.WARNING, found, advice)


def _address(check: str, host: str, port: int, require: Callable[[str, int], None]) -> CheckFinding:
    address = address_of(host, port) if port else f"{host}, on a free port"
    try:
        if port:
            require(host, port)
    except (ConfigError, UnavailableError) as error:
        message, _, advice = str(error).partition(": ")
        return CheckFinding(check, Severity.PROBLEM, message, advice)
    return CheckFinding(check, Severity.OK, f"{address} is free" if port else address)


def _dialled(host: str) -> str:
    return LOOPBACK if host in ANY_INTERFACE else host


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return url.replace(f"{parts.username}:{parts.password}@", "") if parts.password else url
