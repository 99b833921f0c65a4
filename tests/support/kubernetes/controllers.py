"""What Kubernetes' controllers would make of an object, if all went well: at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Object = dict[str, Any]

STARTED = "2026-01-01T00:00:00Z"
"""Of every object: nothing here takes time."""


def settle(item: Object) -> None:
    """Set the object's status, in place, to that of one whose controller is done."""
    status = _STATUS.get(item["kind"])
    if status is not None:
        item["status"] = status(item)


def _deployment(item: Object) -> Object:
    replicas = item["spec"].setdefault("replicas", 1)
    item["spec"].setdefault("progressDeadlineSeconds", 600)
    return {
        "observedGeneration": item["metadata"]["generation"],
        **dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas),
        "conditions": [
            {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
        ],
    }


def _pod(item: Object) -> Object:
    if item["spec"].get("restartPolicy") in ("Never", "OnFailure"):
        return {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False", "reason": "PodCompleted"}]}
    return {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def _budget(item: Object) -> Object:
    return {
        "observedGeneration": item["metadata"]["generation"],
        "currentHealthy": 1,
        "desiredHealthy": 0,
        "expectedPods": 1,
        "disruptionsAllowed": 1,
    }


def _service(_item: Object) -> Object:
    return {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}


_STATUS: dict[str, Callable[[Object], Object]] = {
    "Deployment": _deployment,
    "Pod": _pod,
    "PodDisruptionBudget": _budget,
    "Service": _service,
    "PersistentVolumeClaim": lambda _item: {"phase": "Bound"},
    "Namespace": lambda _item: {"phase": "Active"},
}
