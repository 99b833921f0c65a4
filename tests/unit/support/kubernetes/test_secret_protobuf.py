from __future__ import annotations

import base64

import pytest

from tests.support.kubernetes.secret_protobuf import MAGIC, decode_secret


def varint(number: int) -> bytes:
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def entry(key: str, value: bytes) -> bytes:
    return field(1, key.encode()) + field(2, value)


def encoded(kind: str, message: bytes) -> bytes:
    type_meta = field(1, b"v1") + field(2, kind.encode())
    return MAGIC + field(1, type_meta) + field(2, message)


def test_a_release_of_helm_4() -> None:
    generation = varint(7 << 3) + varint(300)
    metadata = field(1, b"sh.helm.release.v1.r.v1") + generation + field(11, entry("owner", b"helm"))
    data = bytes(range(256)) * 2
    message = field(1, metadata) + field(2, entry("release", data)) + field(3, b"helm.sh/release.v1")
    assert decode_secret(encoded("Secret", message)) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "sh.helm.release.v1.r.v1", "labels": {"owner": "helm"}},
        "data": {"release": base64.b64encode(data).decode()},
        "type": "helm.sh/release.v1",
    }


def test_other_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="protobuf of kind Pod"):
        decode_secret(encoded("Pod", b""))
