"""The first frames of a stream: who speaks, and whether the two sides fit."""

from __future__ import annotations

import msgspec

from pilotfish.errors import HandshakeError
from pilotfish.rpc.conversion import (
    limits_from_proto,
    limits_to_proto,
    model_from_proto,
    model_to_proto,
    values_of,
)
from pilotfish.rpc.v1 import types_pb2 as pb
from pilotfish.types import Limits, ModelInfo

PROTOCOL_VERSION = 1
"""Version of the internal streams. It is raised where an older side would misread what a newer one says; fields that
an older side may ignore do not raise it. Each version also speaks the one before it, so that a rolling upgrade never
splits a fleet."""

_SHOWN_FINGERPRINT_CHARACTERS = 12


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The dialling side's first message; see pilotfish.v1.Hello."""

    peer: str
    """Name of the dialling side for logs."""
    tokenizer_fingerprint: str = ""
    """Empty asks for no check."""
    protocol_version: int = PROTOCOL_VERSION


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The replica's answer; see pilotfish.v1.Welcome."""

    model: ModelInfo
    limits: Limits
    replica_id: str
    protocol_version: int = PROTOCOL_VERSION


def check_handshake(hello: Hello, welcome: Welcome) -> None:
    """Both sides call this with what they said and heard.

    Raises: HandshakeError, whose message names both sides, when versions are more than one apart or tokenizers differ.
    """
    older, newer = sorted((hello.protocol_version, welcome.protocol_version))
    if older < 1 or newer - older > 1:
        raise HandshakeError(
            f"{hello.peer} speaks stream protocol version {hello.protocol_version}, replica {welcome.replica_id} "
            f"version {welcome.protocol_version}: run releases of Pilotfish that are at most one version apart"
        )
    theirs = welcome.model.tokenizer_fingerprint
    if hello.tokenizer_fingerprint and hello.tokenizer_fingerprint != theirs:
        raise HandshakeError(
            f"{hello.peer} has tokenizer {_short(hello.tokenizer_fingerprint)}, replica {welcome.replica_id} "
            f"(model {welcome.model.model_id}) has {_short(theirs)}: both need models with the same "
            "tokenizer, or a draft model that is translated (draft.vocabulary: auto; for more targets, draft.targets)"
        )


def hello_to_proto(hello: Hello) -> pb.Hello:
    return pb.Hello(**msgspec.structs.asdict(hello))


def hello_from_proto(proto: pb.Hello) -> Hello:
    return Hello(**values_of(proto, Hello))


def welcome_to_proto(welcome: Welcome) -> pb.Welcome:
    return pb.Welcome(
        protocol_version=welcome.protocol_version,
        model=model_to_proto(welcome.model),
        limits=limits_to_proto(welcome.limits),
        replica_id=welcome.replica_id,
    )


def welcome_from_proto(proto: pb.Welcome) -> Welcome:
    return Welcome(
        protocol_version=proto.protocol_version,
        model=model_from_proto(proto.model),
        limits=limits_from_proto(proto.limits),
        replica_id=proto.replica_id,
    )


def _short(fingerprint: str) -> str:
    return fingerprint[:_SHOWN_FINGERPRINT_CHARACTERS] or "(none)"
