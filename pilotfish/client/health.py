"""Is a service well? The standard health protocol of gRPC, as Kubernetes' probes ask it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

Status = Literal["SERVING", "NOT_SERVING", "UNKNOWN", "SERVICE_UNKNOWN", "UNREACHABLE"]


@dataclass(frozen=True, kw_only=True)
class Health:
    """One answer, or that there was none."""

    address: str
    service: str
    """Health name that was asked: empty or `readiness` follows whether it serves, `liveness` whether it answers."""
    status: Status
    latency_ms: float
    detail: str = ""
    """Why there was no answer."""

    @property
    def is_serving(self) -> bool:
        return self.status == "SERVING"


async def check_health(channel: grpc.aio.Channel, address: str, service: str, timeout_s: float) -> Health:
    """Ask once; address is what the channel dials, for the report. Closes the channel."""
    start = time.perf_counter()
    status: Status
    detail = ""
    async with channel:
        try:
            request = health_pb2.HealthCheckRequest(service=service)
            response = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=timeout_s)
            status = health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)
        except grpc.aio.AioRpcError as error:
            is_unknown = error.code() is grpc.StatusCode.NOT_FOUND
            status = "SERVICE_UNKNOWN" if is_unknown else "UNREACHABLE"
            detail = "" if is_unknown else f"{error.code().name}: {error.details()}"
    latency_ms = (time.perf_counter() - start) * 1000
    return Health(address=address, service=service, status=status, latency_ms=latency_ms, detail=detail)
