"""How Kubernetes applies patches: JSON merge patches for custom resources, strategic ones (Helm 3's) for its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]

_MERGE_KEYS = {
    "containers": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ports": ("containerPort", "port"),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""Lists whose items are merged, and what tells an item from another (Kubernetes' `patchMergeKey`); other lists are
replaced as wholes."""
_ORDER = "$setElementOrder/"
_RETAIN = "$retainKeys"
_PATCH = "$patch"


def merged(item: Any, patch: Mapping[str, Any]) -> Object:
    """A JSON merge patch (RFC 7396) applied to a copy."""
    result = dict(item) if isinstance(item, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(result.get(name), value)
        else:
            result[name] = value
    return result


def strategically_merged(item: Any, patch: Mapping[str, Any]) -> Object:
    """A strategic merge patch applied to a copy."""
    values = {name: value for name, value in patch.items() if not name.startswith("$")}
    if patch.get(_PATCH) == "replace":
        return dict(values)
    result = dict(item) if isinstance(item, dict) else {}
    if _RETAIN in patch:
        result = {name: value for name, value in result.items() if name in patch[_RETAIN]}
    for name, value in values.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = strategically_merged(result.get(name), value)
        elif name in _MERGE_KEYS:
            result[name] = _merged_list(result.get(name) or [], value, name, patch.get(_ORDER + name))
        else:
            result[name] = value
    return result


def _merged_list(items: list[Object], patches: list[Object], name: str, order: list[Object] | None) -> list[Object]:
    by_key = {_key(item, name): item for item in items}
    for patch in patches:
        key = _key(patch, name)
        if patch.get(_PATCH) == "delete":
            by_key.pop(key, None)
        else:
            by_key[key] = strategically_merged(by_key.get(key), patch)
    if order is None:
        return list(by_key.values())
    places = {_key(each, name): place for place, each in enumerate(order)}
    return [by_key[key] for key in sorted(by_key, key=lambda key: places.get(key, len(places)))]


def _key(item: Object, name: str) -> Any:
    return next((item[key] for key in _MERGE_KEYS[name] if key in item), None)
