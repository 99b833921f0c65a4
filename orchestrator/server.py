"""The orchestrator as a process-wide service: pools, API and health, from start to stop."""

from __future__ import annotations

import asyncio
import logging

import grpc.aio

from orchestrator.api_security import ApiSecurity
from orchestrator.call_guard import CallGuard
from orchestrator.http.app import build_app
from orchestrator.http.operations.information import InformationApi
from orchestrator.http.operations.probes import serve_probes
from orchestrator.http.server import HttpServer
from orchestrator.inference import InferenceService
from orchestrator.metrics.collector import OrchestratorCollector
from orchestrator.replicas.dialing import dialer, find_tokenizer
from orchestrator.replicas.directory import NameFollower, ReplicaDirectory
from orchestrator.replicas.pool import ModelReference, ReplicaPool
from orchestrator.replicas.routing import make_router
from orchestrator.requests.body_budget import BodyBudget, max_message_bytes
from orchestrator.requests.call_messages import CallMessages
from orchestrator.requests.request import PROPOSERS
from orchestrator.requests.stranger_share import StrangerShare
from orchestrator.servicer import InferenceServicer
from pilotfish.config import Config, OrchestratorConfig, PublicSecurityConfig
from pilotfish.errors import ConfigError, UnavailableError
from pilotfish.models.tokens.tokenizer import Tokenizer
from pilotfish.rpc.link_security import LinkSecurity
from pilotfish.rpc.server import GrpcServer, require_free_port
from pilotfish.rpc.v1 import inference_pb2, inference_pb2_grpc
from pilotfish.telemetry.families import new_registry

_log = logging.getLogger(__name__)

SERVICE_NAME = inference_pb2.DESCRIPTOR.services_by_name["Inference"].full_name


class OrchestratorServer:
    """A listening orchestrator. Made by `start`; SERVING while a target replica is connected."""

    def __init__(self, service: InferenceService, server: GrpcServer, metrics_prefix: str) -> None:
        self.service = service
        self.metrics = new_registry(OrchestratorCollector(service), metrics_prefix)
        """What /metrics shows. Read it on the event loop."""
        self._names: NameFollower | None = None
        self._server = server
        self._http: HttpServer | None = None
        self._probes: HttpServer | None = None
        self._is_draining = False
        self._closed = asyncio.Event()
        self._health_changed = asyncio.Event()
        self._health_task = asyncio.create_task(self._publish_health())

    @classmethod
    async def start(cls, config: Config, directory: ReplicaDirectory | None = None) -> OrchestratorServer:
        """Load the tokenizer, dial the replicas, listen on config.orchestrator.host:port (0: a free port) and for HTTP.

        Does not wait for replicas: requests do. `directory` defaults to the configured addresses.
        Raises ConfigError for an unknown proposer or for unusable certificates and keys, ModelError when there is no
        tokenizer, UnavailableError when the port cannot be had.
        """
        _check_proposer(config)
        directory = directory or ReplicaDirectory.from_config(config)
        links = LinkSecurity(config.security.internal)
        public, security = ApiSecurity(config), config.security.public
        await _require_free_ports(config.orchestrator)
        tokenizer = await find_tokenizer(config, directory, links)
        service = _service(config, directory, tokenizer, links)

        budget = BodyBudget.of(config.orchestrator)
        strangers = StrangerShare(security.max_stranger_share)
        messages = CallMessages(config.orchestrator, budget, security.request_read_timeout_s, strangers)
        # Calls that need no key take neither turns nor memory from those that do.
        own_budget = BodyBudget(4 * max_message_bytes(config.orchestrator))
        keyless_messages = CallMessages(config.orchestrator, own_budget, security.request_read_timeout_s, strangers)

        def register(server: grpc.aio.Server) -> None:
            servicer = InferenceServicer(service, config.orchestrator, public.authenticator)
            inference_pb2_grpc.add_InferenceServicer_to_server(servicer, server)

        server = await GrpcServer.start(
            config.orchestrator.host,
            config.orchestrator.port,
            register=register,
            service_names=(SERVICE_NAME,),
            port_setting="orchestrator.port",
            options=public.grpc_options,
            credentials=public.grpc_credentials,
            interceptors=(CallGuard(SERVICE_NAME, public.authenticator, messages, keyless_messages),),
        )
        self = cls(service, server, config.telemetry.metrics_prefix)
        try:
            await self._start_http(config.orchestrator, security, public, budget, strangers)
        except BaseException:
            await self.drain_and_stop(0)
            raise
        self._names = await NameFollower.start(config.orchestrator, directory)
        service.targets.on_change(self._health_changed.set)
        service.targets.start()
        service.drafts.start()
        return self

    @property
    def address(self) -> str:
        """The `host:port` of the public API."""
        return self._server.address

    @property
    def http_url(self) -> str:
        """Where the HTTP API is; empty: it is off."""
        return "" if self._http is None else self._http.url

    @property
    def probe_url(self) -> str:
        """URL of the HTTP API for probes alone; empty: there is none."""
        return "" if self._probes is None else self._probes.url

    async def wait_ready(self, timeout_s: float) -> bool:
        """Wait for a target replica; False if none came in time."""
        try:
            await self.service.targets.connected(timeout_s)
        except UnavailableError:
            return False
        return True

    async def drain_and_stop(self, grace_s: float) -> None:
        """Refuse new requests, let running ones end for grace_s, cancel the rest. Idempotent."""
        self._is_draining = True
        self._health_changed.set()
        await self._server.set_ready(False)
        servers = (self._server, self._http, self._probes)
        await asyncio.gather(*(server.stop(grace_s) for server in servers if server is not None))
        self._health_task.cancel()
        await asyncio.gather(self._health_task, return_exceptions=True)
        if self._names is not None:
            await self._names.close()
        await asyncio.gather(self.service.targets.close(), self.service.drafts.close())
        self.service.threads.close()
        await self.service.grammar_check.close()
        await self.service.observer.close()
        self._closed.set()

    async def wait_closed(self) -> None:
        """Returns when the server has stopped."""
        await self._closed.wait()

    async def _start_http(
        self,
        config: OrchestratorConfig,
        limits: PublicSecurityConfig,
        public: ApiSecurity,
        budget: BodyBudget,
        strangers: StrangerShare,
    ) -> None:
        if config.http.probe_port >= 0:
            information = InformationApi(self.service, lambda: self._is_draining, self.metrics)
            self._probes = await serve_probes(information, config.http_host, config.http.probe_port)
        if config.http_port < 0:
            return
        self._http = await HttpServer.start(
            build_app(self.service, config, lambda: self._is_draining, self.metrics, public.authenticator, budget),
            config.http_host,
            config.http_port,
            keep_alive_timeout_s=config.http.keep_alive_timeout_s,
            limits=limits,
            strangers=strangers,
            certificates=public.certificates,
        )

    async def _publish_health(self) -> None:
        while True:
            await self._health_changed.wait()
            self._health_changed.clear()
            is_ready = not self._is_draining and self.service.targets.num_connected > 0
            await self._server.set_ready(is_ready)


async def _require_free_ports(config: OrchestratorConfig) -> None:
    """Raises where a port is taken, before the tokenizer is looked for: that may take a model's download."""
    await require_free_port(config.host, config.port, "orchestrator.port")
    await require_free_port(config.http_host, config.http_port, "orchestrator.http.port")
    await require_free_port(config.http_host, config.http.probe_port, "orchestrator.http.probe_port")


def _check_proposer(config: Config) -> None:
    proposer = config.orchestrator.speculation.proposer
    if proposer not in PROPOSERS:
        raise ConfigError(f"orchestrator.speculation.proposer is {proposer!r}; known are {', '.join(PROPOSERS)}")


def _service(
    config: Config, directory: ReplicaDirectory, tokenizer: Tokenizer, links: LinkSecurity
) -> InferenceService:
    fingerprint, silence_timeout_s = tokenizer.fingerprint, config.orchestrator.silence_timeout_s
    targets = ReplicaPool(
        "target",
        directory,
        dialer("target", fingerprint, links),
        ModelReference().check,
        router=make_router(config.orchestrator.routing),
        silence_timeout_s=silence_timeout_s,
    )
    drafts = ReplicaPool("draft", directory, dialer("draft", fingerprint, links), silence_timeout_s=silence_timeout_s)
    return InferenceService(config, tokenizer, targets, drafts)
