from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes.schemas import CustomResources, check_built_in, checker, is_built_in

SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "a"},
    "spec": {"ports": [{"port": 1}]},
}
MONITOR = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor"}
SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "required": ["selector", "filled"],
            "properties": {
                "selector": {"type": "object", "additionalProperties": {"type": "string"}},
                "filled": {"type": "string", "default": "by the API server"},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {}},
            },
        },
    },
}


def test_built_in_kinds() -> None:
    check_built_in(SERVICE, "1.34")
    with pytest.raises(ValueError, match="name_of_it"):
        check_built_in({**SERVICE, "spec": {"ports": [{"port": 1, "name_of_it": "x"}]}}, "1.34")
    with pytest.raises(ValueError, match=r"1\.34"):
        check_built_in({**SERVICE, "kind": "Servise"}, "1.34")


@pytest.mark.parametrize(
    ("api_version", "built_in"),
    [
        ("v1", True),
        ("apps/v1", True),
        ("networking.k8s.io/v1", True),
        ("gateway.networking.k8s.io/v1", False),
        ("ray.io/v1", False),
    ],
)
def test_whose_kind_it_is(api_version: str, built_in: bool) -> None:
    assert is_built_in({"apiVersion": api_version}) is built_in


def test_custom_resources_are_checked_strictly(tmp_path: Path) -> None:
    (tmp_path / "podmonitor_v1.json").write_text(json.dumps(SCHEMA))
    custom = CustomResources(tmp_path)
    custom.check({**MONITOR, "spec": {"selector": {"any": "label"}, "open": {"any": 1}}})
    with pytest.raises(ValueError, match="selektor"):
        custom.check({**MONITOR, "spec": {"selector": {}, "selektor": {}}})
    with pytest.raises(ValueError, match="'selector' is a required property"):
        custom.check({**MONITOR, "spec": {}})
    with pytest.raises(ValueError, match="no schema of"):
        custom.check({**MONITOR, "kind": "Probe"})


def test_without_schemas_custom_resources_pass() -> None:
    checker("1.34", None)(dict(MONITOR))
    with pytest.raises(ValueError, match="spec"):
        checker("1.34", None)({**SERVICE, "spec": 1})
