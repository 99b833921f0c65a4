"""Secrets in Kubernetes' protobuf encoding, in which Helm 4 keeps its releases."""

from __future__ import annotations

import base64
from typing import Any

MAGIC = b"k8s\0"

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_METADATA_TEXTS = {1: "name", 3: "namespace", 5: "uid", 6: "resourceVersion"}
_METADATA_MAPS = {11: "labels", 12: "annotations"}


def decode_secret(raw: bytes) -> dict[str, Any]:
    """The object that `raw` (magic, then runtime.Unknown) encodes. Raises ValueError for another kind."""
    unknown = dict(_fields(raw.removeprefix(MAGIC)))
    type_meta = dict(_fields(unknown[1]))
    api_version, kind = type_meta[1].decode(), type_meta[2].decode()
    if kind != "Secret":
        raise ValueError(f"protobuf of kind {kind}")
    secret: dict[str, Any] = {"apiVersion": api_version, "kind": kind, "metadata": {}}
    for number, value in _fields(unknown[2]):
        if number == 1:
            secret["metadata"] = _metadata(value)
        elif number == 2:
            key, data = _entry(value)
            secret.setdefault("data", {})[key] = base64.b64encode(data).decode()
        elif number == 3:
            secret["type"] = value.decode()
    return secret


def _metadata(raw: bytes) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for number, value in _fields(raw):
        if number in _METADATA_TEXTS and value:
            metadata[_METADATA_TEXTS[number]] = value.decode()
        elif number in _METADATA_MAPS:
            key, text = _entry(value)
            metadata.setdefault(_METADATA_MAPS[number], {})[key] = text.decode()
    return metadata


def _entry(raw: bytes) -> tuple[str, bytes]:
    """Of a map field."""
    entry = dict(_fields(raw))
    return entry.get(1, b"").decode(), entry.get(2, b"")


def _fields(raw: bytes) -> list[tuple[int, bytes]]:
    """The length-delimited fields of a message, in order; numbers are skipped."""
    fields, position = [], 0
    while position < len(raw):
        tag, position = _varint(raw, position)
        wire_type = tag & 7
        if wire_type == _VARINT:
            _, position = _varint(raw, position)
        elif wire_type == _BYTES:
            length, position = _varint(raw, position)
            fields.append((tag >> 3, raw[position : position + length]))
            position += length
        else:
            position += 8 if wire_type == _FIXED64 else 4
    return fields


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    """(number, position after it)."""
    number = shift = 0
    while True:
        byte = raw[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, position
