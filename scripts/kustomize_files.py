"""Rendered objects as a kustomize base, and as overlays that say what is different."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

Object = dict[str, Any]

HEADER = "# Generated from helm/pilotfish by `make chart`: change the chart.\n"
_HELM_LABELS = {"helm.sh/chart", "app.kubernetes.io/managed-by"}


def kustomize_files(base: Iterable[Object], overlays: Mapping[str, Iterable[Object]]) -> dict[str, str]:
    """Path to content: base/, and overlays/NAME/ for each."""
    base_objects = by_name(base)
    files = dict(_resources("base", base_objects))
    files["base/kustomization.yaml"] = _dump(_kustomization(sorted(map(file_name, base_objects))))
    for name, objects in overlays.items():
        files.update(_overlay(f"overlays/{name}", base_objects, by_name(objects)))
    return files


def by_name(objects: Iterable[Object]) -> dict[tuple[str, str], Object]:
    """(kind, name) to object, without the labels that only Helm's own have."""
    return {(each["kind"], each["metadata"]["name"]): without_helm(each) for each in objects}


def without_helm(value: Any) -> Any:
    """A copy in which no label says that Helm manages it."""
    if isinstance(value, list):
        return [without_helm(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: {name: label for name, label in each.items() if name not in _HELM_LABELS}
        if key == "labels" and isinstance(each, dict)
        else without_helm(each)
        for key, each in value.items()
    }


def file_name(key: tuple[str, str]) -> str:
    return f"{key[0].lower()}-{key[1]}.yaml"


def _overlay(
    folder: str, base: Mapping[tuple[str, str], Object], wanted: Mapping[tuple[str, str], Object]
) -> dict[str, str]:
    added = {key: each for key, each in wanted.items() if key not in base}
    files = dict(_resources(folder, added))
    patches: list[Object] = []
    for key, each in base.items():
        kind, name = key
        target = {"kind": kind, "name": name}
        if key not in wanted:
            removal = {"apiVersion": each["apiVersion"], "kind": kind, "metadata": {"name": name}, "$patch": "delete"}
            patches.append({"target": target, "patch": _dump(removal, header="")})
        elif operations := list(differences(each, wanted[key])):
            files[f"{folder}/patches/{file_name(key)}"] = _dump(operations)
            patches.append({"target": target, "path": f"patches/{file_name(key)}"})
    resources = ["../../base", *sorted(map(file_name, added))]
    files[f"{folder}/kustomization.yaml"] = _dump({**_kustomization(resources), "patches": patches})
    return files


def differences(old: Any, new: Any, path: str = "") -> Iterator[Object]:
    """JSON patch operations (RFC 6902) that make `new` of `old`. Lists are replaced as wholes."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        if old != new:
            yield {"op": "replace", "path": path, "value": new}
        return
    for key in sorted({*old, *new}):
        below = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        if key not in new:
            yield {"op": "remove", "path": below}
        elif key not in old:
            yield {"op": "add", "path": below, "value": new[key]}
        else:
            yield from differences(old[key], new[key], below)


def _resources(folder: str, objects: Mapping[tuple[str, str], Object]) -> Iterator[tuple[str, str]]:
    for key, each in objects.items():
        yield f"{folder}/{file_name(key)}", _dump(each)


def _kustomization(resources: list[str]) -> Object:
    return {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources}


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _dump(value: Any, header: str = HEADER) -> str:
    return header + yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=120)
