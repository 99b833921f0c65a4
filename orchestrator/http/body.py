"""Request bodies: read within a limit, decoded with the name of what is wrong."""

from __future__ import annotations

import codecs
import functools
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

import msgspec
from msgspec import inspect
from starlette.requests import Request

from orchestrator.requests.request import check_request_bytes
from pilotfish.errors import InvalidRequestError
from pilotfish.structured.bounds import check_json

_UNKNOWN_FIELD = re.compile(r"unknown field `(?P<name>[^`]*)`")
_MISSING_FIELD = re.compile(r"missing required field `(?P<name>[^`]*)`")
_PLACE = re.compile(r" - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`$")

BodyT = TypeVar("BodyT")

_type_info = functools.cache(inspect.type_info)

encode_body = msgspec.json.Encoder(decimal_format="number").encode
"""Encodes answers: decimals, which requests had as numbers (see `decoder_of`), are numbers again."""


async def read_body(request: Request, max_bytes: int, hold: Callable[[int], None]) -> bytearray:
    """The whole body. hold: called with its length so far.

    Raises RequestTooLargeError as soon as it is longer than max_bytes, InvalidRequestError if it is compressed, and
    what `hold` does.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal():
        check_request_bytes(int(declared), max_bytes)
    coding = request.headers.get("content-encoding", "").strip().lower()
    body = bytearray()  # which grows in its place: pieces that are joined take twice as much
    async for piece in request.stream():
        if piece and coding not in ("", "identity"):
            raise InvalidRequestError(f"the body has the content coding {coding[:64]!r}; send it without one")
        num_bytes = len(body) + len(piece)
        check_request_bytes(num_bytes, max_bytes)
        hold(num_bytes)
        body += piece
    return body


def decoder_of(kind: type[BodyT]) -> msgspec.json.Decoder[BodyT]:
    """Decodes bodies with schemas: a float of no declared type becomes a decimal, so that no digit is lost unseen."""
    return msgspec.json.Decoder(kind, float_hook=Decimal)


def decode_body(decoder: msgspec.json.Decoder[BodyT], body: bytes | bytearray) -> BodyT:
    """Raises InvalidRequestError, with the parameter where one is wrong."""
    if body.startswith(codecs.BOM_UTF8):  # some clients begin with it, and a reader may skip it (RFC 8259, 8.1)
        body = body[len(codecs.BOM_UTF8) :]
    check_json(body, "the body")
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        message, param = _explain(str(error), decoder.type)
        raise InvalidRequestError(message, param=param) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from None
    except InvalidOperation:
        raise InvalidRequestError("the body holds a number whose exponent is beyond all bounds") from None


def _explain(message: str, kind: Any) -> tuple[str, str | None]:
    """A msgspec message in words for callers, and the parameter that it is about. kind: what was to be decoded."""
    place = _PLACE.search(message)
    path = place["path"] if place else ""
    problem = message[: place.start()] if place else message
    if unknown := _UNKNOWN_FIELD.search(problem):
        param = _joined(path, unknown["name"])
        return f"unrecognized request argument: {param}", param
    if missing := _MISSING_FIELD.search(problem):
        param = _joined(path, missing["name"])
        return f"you must provide the parameter {param}", param
    if not path:
        return problem, None
    if choices := _choices(kind, path) if problem.startswith("Invalid enum value") else []:
        problem = f"{problem}; known are {', '.join(choices)}"
    return f"{path}: {problem[:1].lower()}{problem[1:]}", path


def _choices(kind: Any, path: str) -> list[str]:
    """The words that may stand at a place."""
    places = [_type_info(kind)]
    for step in re.sub(r"\[[^]]*\]", ".[]", path).split("."):
        within = [place.item_type for place in places if step == "[]" and isinstance(place, inspect.ListType)]
        structs = [place for place in places if isinstance(place, inspect.StructType)]
        within += [field.type for struct in structs for field in struct.fields if field.encode_name == step]
        places = [
            each for place in within for each in (place.types if isinstance(place, inspect.UnionType) else [place])
        ]
    return [str(value) for place in places if isinstance(place, inspect.LiteralType) for value in place.values]


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
