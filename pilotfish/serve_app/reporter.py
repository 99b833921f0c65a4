"""What becomes of the application's deployments, as lines like those that the services print themselves."""

from __future__ import annotations

import re
import sys

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.schema import ApplicationStatus, DeploymentStatus

from pilotfish.errors import UnavailableError
from pilotfish.serve_app.ray_errors import told_as_unavailable

APPLICATION = "pilotfish"
SERVICES = {"target": "target_service", "draft": "draft_service", "orchestrator": "orchestrator"}
"""Deployment name to service name."""
DESCRIBE_TIMEOUT_S = 10.0

_EXCEPTION_NAME = re.compile(r"^(\w+\.)+\w+: ")


class Reporter:
    """Prints what changes in the state of the deployments."""

    def __init__(self) -> None:
        self._states: dict[str, DeploymentStatus] = {}
        self._problems: dict[str, str] = {}
        self._ready: set[str] = set()

    @property
    def is_starting(self) -> bool:
        """Whether the orchestrator, the last of those that are needed, has yet to become ready."""
        return "orchestrator" not in self._ready

    def poll(self) -> None:
        """Compare with Serve's status once.

        Raises UnavailableError when a needed service cannot start, or Serve does not say.
        """
        with told_as_unavailable("say how the services are"):
            application = serve.status().applications.get(APPLICATION)
        if application is None:
            return
        for name, deployment in application.deployments.items():
            is_healthy = deployment.status is DeploymentStatus.HEALTHY
            if name == "orchestrator" and is_healthy and "target" not in self._ready:
                continue  # it listens already, but cannot answer
            became_healthy = is_healthy and self._states.get(name) is not DeploymentStatus.HEALTHY
            if became_healthy and not self._print_ready(name):
                continue  # its replica was lost just now: the next look shows
            self._states[name] = deployment.status
            if became_healthy:
                self._ready.add(name)
            elif deployment.status is DeploymentStatus.DEPLOY_FAILED and name != "draft":
                raise UnavailableError(f"{SERVICES[name]} cannot start: {reason(deployment.message)}")
            elif not is_healthy and deployment.message:
                self._print_problem(name, reason(deployment.message))
        if application.status is ApplicationStatus.DEPLOY_FAILED and not application.deployments:
            raise UnavailableError(f"the application cannot start: {reason(application.message)}")

    def _print_ready(self, name: str) -> bool:
        """False: nobody answers there."""
        try:
            handle = serve.get_deployment_handle(name, APPLICATION)
            description = handle.describe.remote().result(timeout_s=DESCRIBE_TIMEOUT_S)
        except (RayError, RayServeException, TimeoutError):
            return False
        detail = f" ({description['detail']})" if description["detail"] else ""
        print(f"{SERVICES[name]} ready on {description['address']}{detail}", flush=True)
        return True

    def _print_problem(self, name: str, problem: str) -> None:
        if self._problems.get(name) != problem:
            self._problems[name] = problem
            print(f"{SERVICES[name]}: {problem}", file=sys.stderr, flush=True)


def reason(message: str) -> str:
    """The last line of one of Serve's messages: of a traceback, the exception's own message."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return _EXCEPTION_NAME.sub("", lines[-1]) if lines else "no reason given"
