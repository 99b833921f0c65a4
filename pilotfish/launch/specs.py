"""What `pilotfish up` starts: one child for Ray Serve, or one per service."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import secrets
import socket
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pilotfish.child import tethered
from pilotfish.config import (
    Config,
    config_to_yaml,
    environment,
    service_environment,
    setting_variables,
    shipped_heads,
    with_absolute_paths,
)
from pilotfish.config.paths import NamedKind
from pilotfish.emulation.profiles import hardware_profile
from pilotfish.installation import require
from pilotfish.launch.supervisor import ChildSpec
from pilotfish.models.store import catalogue
from pilotfish.security.link_token import write_new_token

_IS_PATH: Mapping[NamedKind, Callable[[str], bool]] = MappingProxyType(
    {"model": catalogue.is_local, "head": shipped_heads.is_local, "profile": hardware_profile.is_local}
)

STOP_MARGIN_S = 20.0
"""Time from the end of a service's drain until it is killed; Ray and Serve end in it as well."""
_PORTS = range(20_000, 32_768)
"""Above those of Ray's workers, below those that Linux gives to connections and to who binds port 0."""


@dataclass(frozen=True)
class Launch:
    """All that a Supervisor needs."""

    config: Config
    """What the services read, with addresses filled in."""
    specs: list[ChildSpec]
    environment: dict[str, str]


def prepare(config: Config, folder: Path, *, standalone: bool) -> Launch:
    """Write config.yaml into `folder` and say what to start there: plain processes, or Ray Serve.

    The replicas serve nobody else: see `with_link_token`. Variables that override values stay here: config.yaml has
    them already, and addresses of its own. Raises ConfigError where Ray is asked for and not installed.
    """
    config = with_link_token(with_absolute_paths(config, _IS_PATH), folder)
    if standalone:
        config = with_local_addresses(config)
        launch = Launch(config, standalone_specs(config, folder), service_environment(without=setting_variables()))
    else:
        require("ray", "`pilotfish serve --ray`")
        variables = environment(ray_environment(), without={*FOREIGN_RAY_VARIABLES, *setting_variables()})
        launch = Launch(config, ray_specs(config, folder), variables)
    (folder / "config.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    return launch


def ray_specs(config: Config, folder: Path) -> list[ChildSpec]:
    """The process that runs the Ray Serve application. `folder` holds config.yaml and Ray's files."""
    services = {"target_service", "orchestrator"} | ({"draft_service"} if config.draft.num_replicas else set())
    argv = [*_python("pilotfish.serve_app", folder), "--temp-dir", str(folder / "ray")]
    spec = ChildSpec(name="serve", argv=argv, services=frozenset(services), stop_timeout_s=_stop_timeout_s(config))
    return [spec, *trainer_specs(config, folder)]


def trainer_specs(config: Config, folder: Path) -> list[ChildSpec]:
    """The trainer, if the drafter is to learn. Nobody waits for it, and nothing ends with it."""
    if not config.draft.learning.enabled:
        return []
    argv = _python("pilotfish.training.online", folder)
    return [ChildSpec(name="trainer", argv=argv, services=frozenset(), essential=False)]


def ray_environment() -> dict[str, str]:
    """For a Ray that only we can talk to: a token that lives in this process and its children.

    Ray listens on every interface and runs what it is sent, so it must not run without one.
    """
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray gives its workers niceness 15: whatever else the machine does would come before each token.
        "RAY_worker_niceness": "0",
        # Keep Ray from hiding the GPUs from replicas that asked for none, and from announcing it.
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }


FOREIGN_RAY_VARIABLES = ("RAY_ADDRESS", "RAY_NAMESPACE", "RAY_AUTH_TOKEN_PATH", "RAY_RUNTIME_ENV_HOOK")
"""Variables of a Ray that the user already runs."""


def standalone_specs(config: Config, folder: Path) -> list[ChildSpec]:
    """One process per service; config.yaml in `folder` is the configuration of `with_local_addresses`."""

    def spec(service: str, *, after: frozenset[str] = frozenset()) -> ChildSpec:
        return ChildSpec(
            name=service,
            argv=_python(service, folder),
            services=frozenset({service}),
            after=after,
            essential=service != "draft_service",
            restarts_once_ready=service == "target_service",
            stop_timeout_s=_stop_timeout_s(config),
        )

    drafts = [spec("draft_service")] if config.draft.num_replicas else []
    # After the target, not before: a dial that fails is tried again only after a pause.
    services = [spec("target_service"), *drafts, spec("orchestrator", after=frozenset({"target_service"}))]
    return [*services, *trainer_specs(config, folder)]


def _stop_timeout_s(config: Config) -> float:
    return config.deployment.orchestrator.drain_s + STOP_MARGIN_S


def with_local_addresses(config: Config) -> Config:
    """The configuration of the standalone processes: free internal ports, known to the orchestrator.

    The ports are chosen up front, so that a restarted draft service is found where it was.
    """
    own = config.orchestrator
    taken = {own.port, own.http_port, own.http.probe_port}
    target_port, draft_port = free_ports(2, but_not=taken)
    target = dataclasses.replace(config.target, host="127.0.0.1", port=target_port)
    draft = dataclasses.replace(config.draft, host="127.0.0.1", port=draft_port)
    orchestrator = dataclasses.replace(
        config.orchestrator,
        target_addresses=(f"127.0.0.1:{target_port}",),
        draft_addresses=(f"127.0.0.1:{draft_port}",) if config.draft.num_replicas else (),
    )
    return dataclasses.replace(config, target=target, draft=draft, orchestrator=orchestrator)


def with_link_token(config: Config, folder: Path) -> Config:
    """The configuration with a token of its own for the internal links, unless it says how they are secured.

    Other users of this machine reach the loopback interface, too. `folder` is for nobody else to read.
    """
    internal = config.security.internal
    if internal.is_authenticated or internal.allow_unauthenticated:
        return config
    path = folder / "link-token"
    write_new_token(path)
    internal = dataclasses.replace(internal, token_file=str(path))
    return dataclasses.replace(config, security=dataclasses.replace(config.security, internal=internal))


def free_ports(count: int, *, but_not: Collection[int] = ()) -> list[int]:
    """Distinct TCP ports of the loopback interface that nobody uses right now, and that nobody is given who asks for
    any: they are bound seconds later. but_not: those that somebody else is to bind. Raises OSError where none can be
    bound."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            port = secrets.choice(_PORTS)
            if port in but_not:
                continue
            probe = stack.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                found.append(port)
    return found


def _python(module: str, folder: Path) -> list[str]:
    return tethered(module, "--config", str(folder / "config.yaml"))
