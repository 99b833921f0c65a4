"""What requests are made of, and the one rule for keys that they do not have."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec


class RequestFields(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The base of a request's body and of every object within it.

    The rule for a key that is not declared: the request is refused with 400, and the key is named (`body.py` has the
    words). A misspelt parameter should not go unnoticed. Only objects of the caller's own have keys that nobody
    declares: JSON schemas, `metadata`, `prediction`, and the token ids of `logit_bias`.
    """

    def as_given(self) -> dict[str, Any]:
        """As JSON has it, without what was left out; decimals stay so (see `body.decoder_of`)."""
        given: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(Decimal,))
        return given
