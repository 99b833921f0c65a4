"""`pilotfish serve MODEL`, `pilotfish up`: the three services on this machine."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from pilotfish.cli.commands.models import pull_with_progress
from pilotfish.cli.console import output_console
from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import ConfigFile, Overrides
from pilotfish.cli.preflight import require_free, require_free_http
from pilotfish.cli.serve_flags import with_flags
from pilotfish.cli.service_lines import Printer
from pilotfish.config import Config, DraftConfig, TargetConfig, load_config
from pilotfish.config.fields import address_of
from pilotfish.config.shipped_heads import head_folder, shipped_head
from pilotfish.drafter_registry import IN_TARGET_DRAFTERS
from pilotfish.emulation.factory import describe_emulation
from pilotfish.emulation.profiles import load_profile
from pilotfish.launch.specs import prepare
from pilotfish.launch.supervisor import Supervisor


@with_flags
@fail_on_error()
def serve(
    ray: Annotated[bool, typer.Option("--ray", help="A Ray Serve application instead of plain processes.")] = False,
    config_file: ConfigFile = None,
    overrides: Overrides = None,
) -> None:
    """Start the target, draft and orchestrator services on this machine, until Ctrl-C.

    `pilotfish up` is the same. The model is pulled first. docs/configuration.md explains the keys.

    [bold]Examples[/]

      pilotfish serve meta-llama/Llama-3.1-8B-Instruct --port 8080

      pilotfish serve --ray --set draft.proposer=suffix       under Ray Serve, another drafter

      pilotfish up --config pilotfish.yaml

      pilotfish up --emulate a100-70b                         no model, the time of other hardware
    """
    config = load_config(config_file, overrides or ())
    require_free(config.orchestrator.host, config.orchestrator.port)
    if config.orchestrator.http_port > 0:
        require_free_http(config.orchestrator.http_host, config.orchestrator.http_port)
    printer = Printer(output_console(), http_url(config), drain_s=config.deployment.orchestrator.drain_s)
    if config.emulation.is_on:
        printer.notice(describe_emulation(load_profile(config.emulation.profile), config.emulation.time_scale))
    else:
        printer.notice(_describe_drafts(config))
    target, draft = config.target, config.draft
    ports = {"target.port": (target.port, TargetConfig.port), "draft.port": (draft.port, DraftConfig.port)}
    if unused := [name for name, (port, default) in ports.items() if port not in (0, default)]:
        printer.notice(f"{' and '.join(unused)} not used: `pilotfish serve` takes free ports for its replicas")
    if not ray and max(target.num_replicas, draft.num_replicas, config.orchestrator.num_replicas) > 1:
        printer.notice("num_replicas needs --ray: one process of each service starts")
    pull_models(config)
    asyncio.run(
        run_services(config, standalone=not ray, on_line=printer.line, on_up=printer.up, on_stop=printer.stopping)
    )
    printer.stopped()


def _describe_drafts(config: Config) -> str:
    """Which drafter answers that ask for none get, and how to have another."""
    speculation, target, draft = config.orchestrator.speculation, config.target, config.draft
    if speculation.mode == "off":
        return "No drafts: orchestrator.speculation.mode is off."
    if speculation.proposer != "auto":
        return f"Drafts: {speculation.proposer} (orchestrator.speculation.proposer)."
    parts = [name for name in (target.drafter.lookup, target.drafter.proposer) if name != "none"]
    if parts:
        other = (
            " --set orchestrator.speculation.proposer=draft: the draft service instead." if draft.num_replicas else ""
        )
        return f"Drafts: {', else '.join(parts)} in the target.{other}"
    if not draft.num_replicas and config.default_proposer == "draft":
        return "No drafts: there is no drafter in the target (target.drafter), and no draft replica."
    advice = ""
    # Training holds the whole target on one device.
    if not any(shipped_head(target.model, name) for name in IN_TARGET_DRAFTERS) and target.tensor_parallel_size == 1:
        advice = f" Faster: a head in the target, `pilotfish train eagle3 --target {target.model}`."
    place = "draft service" if config.default_proposer == "draft" else "orchestrator"
    if place == "draft service" and speculation.lookup != "none":
        place += f", after {speculation.lookup} in the orchestrator"
    return f"Drafts: {draft.drafter} in the {place}.{advice}"


def http_url(config: Config) -> str:
    """Where the HTTP API will be; empty if that is known only once it listens, or if it is off."""
    scheme = "https" if config.security.public.uses_tls else "http"
    host, port = config.orchestrator.http_host, config.orchestrator.http_port
    return f"{scheme}://{address_of(host, port)}" if port > 0 else ""


def pull_models(config: Config) -> None:
    """Fetch what the services will load, with a progress bar. Emulated engines load nothing.

    Raises ModelNotFoundError for a head that is not here before anything is fetched; as pull_model.
    """
    if config.emulation.is_on:
        return
    target, draft, cache_dir = config.target, config.draft, Path(config.cache_dir)
    for head in config.heads:
        head_folder(head)
    pull_with_progress(target.model, cache_dir, target.lora)
    if draft.num_replicas and draft.model != target.model:
        pull_with_progress(draft.model, cache_dir)


async def run_services(
    config: Config,
    *,
    standalone: bool,
    on_line: Callable[[str, str], None],
    on_up: Callable[[str], None],
    on_stop: Callable[[], None] = lambda: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Run the services until SIGINT, SIGTERM, SIGHUP or `stop`; nothing is left when it ends.

    on_line(child, line) for every line that a child prints; on_up(public address) once all are ready; on_stop() at the
    first signal. A second one kills what is still stopping. Raises UnavailableError when a service that is needed ends.
    """
    stop, force = stop or asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stop.is_set():
            force.set()
        else:
            stop.set()
            on_stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal)
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
