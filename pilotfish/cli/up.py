"""`pilotfish up`: the three services on this machine."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from pilotfish.cli.console import output_console
from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.models import pull_with_progress
from pilotfish.cli.options import DEFAULT_ADDRESS, ConfigFile, Overrides
from pilotfish.cli.preflight import require_free, require_free_http, reserved
from pilotfish.config import Config, load_config, replace
from pilotfish.launch.specs import prepare
from pilotfish.launch.supervisor import Supervisor
from pilotfish.profiles import load_profile, profile_names
from pilotfish.testing.emulation import describe_emulation

SERVICE_STYLES = {"target_service": "blue", "draft_service": "green", "orchestrator": "magenta", "serve": "cyan"}


@fail_on_error()
def up(
    standalone: Annotated[
        bool, typer.Option("--standalone", help="Plain processes instead of a Ray Serve application.")
    ] = False,
    emulate: Annotated[
        str,
        typer.Option(
            "--emulate",
            metavar="PROFILE",
            help="Engines that take the time of other hardware: a100-70b, h100-70b-tp4, cpu, instant or a file.",
        ),
    ] = "",
    config_file: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Start the target, draft and orchestrator services on this machine, until Ctrl-C.

    By default as a Ray Serve application on a Ray of its own. The model is pulled first if it is
    not there.
    """
    config = load_config(config_file, overrides or ())
    if emulate:
        # Services under Ray run in folders of their own.
        profile = emulate if emulate in profile_names() else str(Path(emulate).expanduser().absolute())
        config = replace(config, emulation=dataclasses.replace(config.emulation, profile=profile))
    with reserved(config.orchestrator.host, config.orchestrator.port):
        require_free(config.orchestrator.host, config.orchestrator.port)
        if config.orchestrator.http_port > 0:
            require_free_http(config.orchestrator.http_host, config.orchestrator.http_port)
        printer = Printer(output_console(), http_url(config))
        if config.emulation.is_on:
            printer.notice(describe_emulation(load_profile(config.emulation.profile)))
        pull_models(config)
        asyncio.run(run_services(config, standalone=standalone, on_line=printer.line, on_up=printer.up))
    print("stopped")


class Printer:
    """What the services say, line by line, with their names."""

    def __init__(self, console: Console, http_url: str = "") -> None:
        """http_url: of the HTTP API; empty: it is off, or on a port that the orchestrator's own line tells."""
        self._console = console
        self._http_url = http_url

    def line(self, child: str, line: str) -> None:
        """A child's line; a ready line stands for itself."""
        service, separator, rest = line.partition(" ready on ")
        if separator and service in SERVICE_STYLES:
            self._print(Text.assemble(("✓ ", "green"), (service, SERVICE_STYLES[service]), separator, rest))
        else:
            self._print(Text.assemble((f"{child} | ", SERVICE_STYLES.get(child, "")), line))

    def notice(self, text: str) -> None:
        """What must not be missed."""
        self._print(Text(text, "bold yellow"))

    def up(self, address: str) -> None:
        """All that requests need is there."""
        option = "" if address == DEFAULT_ADDRESS else f" --address {address}"
        http = (" OpenAI's API: ", (f"{self._http_url}/v1", "bold"), ".") if self._http_url else ()
        self._print(Text.assemble("Pilotfish is up on ", (address, "bold"), ".", *http, " Ctrl-C stops it. Try:"))
        self._print(Text(f"  pilotfish generate{option} 'Why is the sky blue?'"))

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)
        self._console.file.flush()


def http_url(config: Config) -> str:
    """Where the HTTP API will be; empty if that is known only once it listens, or if it is off."""
    scheme = "https" if config.security.public.uses_tls else "http"
    host, port = config.orchestrator.http_host, config.orchestrator.http_port
    return f"{scheme}://{host}:{port}" if port > 0 else ""


def pull_models(config: Config) -> None:
    """Fetch what the services will load, with a progress bar. Emulated engines load nothing."""
    if config.emulation.is_on:
        return
    names = {config.target.model} | ({config.draft.model} if config.draft.num_replicas else set())
    for name in sorted(names):
        pull_with_progress(name, Path(config.cache_dir))


async def run_services(
    config: Config,
    *,
    standalone: bool,
    on_line: Callable[[str, str], None],
    on_up: Callable[[str], None],
    stop: asyncio.Event | None = None,
) -> None:
    """Run the services until SIGINT, SIGTERM, SIGHUP or `stop`; nothing is left when it ends.

    on_line(child, line) for every line that a child prints; on_up(public address) once all are
    ready. A second signal kills what is still stopping. Raises UnavailableError when a service
    that is needed ends.
    """
    stop, force = stop or asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: force.set() if stop.is_set() else stop.set())
    with tempfile.TemporaryDirectory(prefix="pilotfish-", ignore_cleanup_errors=True) as name:
        launch = prepare(config, Path(name), standalone=standalone)
        waiting = {service for spec in launch.specs for service in spec.services}
        public = ""

        def on_ready(service: str, address: str) -> None:
            nonlocal public
            if service == "orchestrator":
                public = address
            if service in waiting:
                waiting.discard(service)
                # Requests are served without drafts too.
                if waiting <= {"draft_service"} and public:
                    on_up(public)
                    public = ""

        supervisor = Supervisor(launch.specs, environment=launch.environment, on_line=on_line, on_ready=on_ready)
        await supervisor.run(stop, force)
