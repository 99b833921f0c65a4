"""What requests are made of, and the one rule for keys that they do not have."""

from __future__ import annotations

import difflib
import functools
import logging
from collections.abc import Mapping
from decimal import Decimal
from itertools import islice
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from msgspec import inspect

from orchestrator.http.body import decode_body, decoder_of, encode_body
from orchestrator.http.exchange import Exchange
from orchestrator.requests.prompt import Run
from pilotfish.errors import InvalidRequestError

IGNORED_HEADER = "x-pilotfish-ignored-fields"
"""Header of an answer: what its request had that changed nothing, each with what may have been meant, or why."""
LOSSY_HEADER = "x-pilotfish-lossy"
"""Header of an answer that need not be the target's own: the acceptance that its request asked for."""
_MAX_NAMED = 32
"""Fields that one answer's header names."""
_MAX_NAME_CHARS = 64
_MAX_LOGGED = 256
"""Names that are logged: strangers make them up."""
_MAX_INTEGER = 2**64
_MAX_INLINE_BYTES = 64 * 1024
"""The largest body that is decoded on the event loop: it takes a millisecond at most."""

NO_EFFECT: Mapping[str, str] = {
    **dict.fromkeys(("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"), ""),
    "prediction": "",
    "include_obfuscation": "TLS hides events",
    # Of messages and calls that clients send back as they got them, here or elsewhere.
    **dict.fromkeys(("name", "annotations", "audio", "function_call", "index", "parsed"), ""),
    **dict.fromkeys(("parsed_arguments", "provider_specific_fields"), ""),
    "add_special_tokens": "the chat template writes them",
    "best_of": "n answers are drawn and all given",
    "chat_template": "only the server's own is rendered",
    "priority": "the queue is fair by client",
    "spaces_between_special_tokens": "they stand as the tokenizer writes them",
    "structural_tag": "response_format and structured_outputs bind whole answers only",
    # Of parts that are refused by their type.
    **dict.fromkeys(("image_url", "input_audio", "file"), ""),
}
"""Fields of other servers that are known and change nothing here, wherever they stand, each with the reason where that
is no matter of course: ignored and named even under strict_fields."""

_log = logging.getLogger(__name__)
_untyped = msgspec.json.Decoder(float_hook=Decimal)


class RequestFields(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The base of a request's body and of every object within it.

    The rule for a key that is not declared: it is left out and named (see `RequestReader`), or, where
    `orchestrator.http.strict_fields` is set, the request is refused with 400. Only objects of the caller's own have
    keys that nobody declares: JSON schemas and the token ids of `logit_bias`.
    """

    served_type: ClassVar[str] = ""
    """The `type` that is served in a list: elements of others are left out and named; empty: all are served."""

    def as_given(self) -> dict[str, Any]:
        """The object as JSON has it, without what was left out; decimals stay so (see `body.decoder_of`)."""
        given: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(Decimal,))
        return given


FieldsT = TypeVar("FieldsT", bound=RequestFields)


class RequestReader(Generic[FieldsT]):
    """Reads the bodies of one endpoint. What it ignores is named in the answer's header, and in the log once."""

    def __init__(self, kind: type[FieldsT], *, is_strict: bool) -> None:
        """is_strict: as HttpConfig.strict_fields."""
        self._decoder = decoder_of(kind)
        self._type = inspect.type_info(kind)
        self._is_strict = is_strict
        self._logged: set[str] = set()

    async def read(self, exchange: Exchange, run: Run) -> FieldsT:
        """The body's fields; the body is dropped. run: for a large one, which would hold the event loop.

        Raises InvalidRequestError, with the parameter where one is wrong.
        """
        is_large = len(exchange.body) > _MAX_INLINE_BYTES
        fields = await run(functools.partial(self._read, exchange)) if is_large else self._read(exchange)
        exchange.body = b""
        return fields

    def _read(self, exchange: Exchange) -> FieldsT:
        try:
            return decode_body(self._decoder, exchange.body)  # nearly always
        except InvalidRequestError:
            tolerance = _Tolerance(self._is_strict)
            tolerated = tolerance.apply(self._type, decode_body(_untyped, exchange.body))
            self.ignore(exchange, tolerance.ignored)
            return decode_body(self._decoder, encode_body(tolerated))

    def ignore(self, exchange: Exchange, fields: Mapping[str, str]) -> None:
        """Name fields, each with what there is to say of it, if anything."""
        first = islice(fields.items(), _MAX_NAMED)
        named = [f"{_printable(name)} ({note})" if note else _printable(name) for name, note in first]
        if named:
            before = exchange.extra_headers.get(IGNORED_HEADER)
            exchange.extra_headers[IGNORED_HEADER] = ", ".join(([before] if before else []) + named)
        for name in named:
            if name not in self._logged and len(self._logged) < _MAX_LOGGED:
                self._logged.add(name)
                _log.warning("%s ignores the field %s (logged once)", exchange.request.url.path, name)


class _Tolerance:
    """A body as its declared types want it: unknown keys, nulls and elements of types that are not served are left out,
    2.0 is an integer where one is."""

    def __init__(self, is_strict: bool) -> None:
        self._is_strict = is_strict
        self.ignored: dict[str, str] = {}
        """What to say of each ignored field, by its place. Many places may be alike."""

    def apply(self, declared: inspect.Type, value: Any, place: str = "") -> Any:
        """The value, made anew where it changes; what cannot be mended stays for the decoder to refuse."""
        match declared:
            case inspect.StructType() if isinstance(value, dict):
                return self._struct(declared, value, place)
            case inspect.UnionType():
                for each in declared.types:  # of which one at most is of the value's kind
                    value = self.apply(each, value, place)
            case inspect.ListType() if isinstance(value, list):
                served = [each for each in value if not self._leaves_out(declared.item_type, each, place)]
                return [self.apply(declared.item_type, each, place) for each in served]
            case inspect.IntType() if isinstance(value, Decimal):
                is_small = value.adjusted() < 20 and abs(value) < _MAX_INTEGER  # abs raises for some exponents
                return int(value) if is_small and value == value.to_integral_value() else value
        return value

    def _struct(self, declared: inspect.StructType, given: dict[str, Any], place: str) -> dict[str, Any]:
        fields = {field.encode_name: field for field in declared.fields}
        kept = {}
        for name, value in given.items():
            path = f"{place}.{name}" if place else name
            field = fields.get(name)
            if field is None and self._is_strict and name not in NO_EFFECT:
                kept[name] = value
            elif field is None:
                if value not in (None, "", [], {}) and (new_place := self._new_place(path)):
                    self.ignored[new_place] = NO_EFFECT[name] if name in NO_EFFECT else _meant(name, fields)
            elif value is not None or field.required:
                kept[name] = self.apply(field.type, value, path)
        return kept

    def _leaves_out(self, declared: inspect.Type, value: Any, place: str) -> bool:
        served = getattr(declared.cls, "served_type", "") if isinstance(declared, inspect.StructType) else ""
        kind = value.get("type") if served and isinstance(value, dict) else None
        if not isinstance(kind, str) or kind == served or self._is_strict:
            return False
        if new_place := self._new_place(f"{place}.{kind}"):
            self.ignored[new_place] = f"only those of type {served} are served"
        return True

    def _new_place(self, path: str) -> str:
        """The end of a path that is to be named; empty where it is already, or too many are."""
        new_place = path[-_MAX_NAME_CHARS:]
        return new_place if new_place not in self.ignored and len(self.ignored) < _MAX_NAMED else ""


def _meant(name: str, known: Mapping[str, Any]) -> str:
    """A question, for a name that was probably misspelt."""
    close = difflib.get_close_matches(name[:_MAX_NAME_CHARS], known, n=1, cutoff=0.8)
    return f"{close[0]}?" if close else ""


def _printable(path: str) -> str:
    """The path as a header may hold it: a line end would begin another."""
    return "".join(letter if "!" <= letter <= "~" else "?" for letter in path[-_MAX_NAME_CHARS:])
