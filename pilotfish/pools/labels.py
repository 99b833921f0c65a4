"""Ray's label selectors: which nodes a pool may use."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ONE_OF = re.compile(r"in\((?P<values>.*)\)")


def matches(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Whether a node with these labels may be used: `value`, `!value`, `in(a,b)` and `!in(a,b)`, as Ray reads them."""
    return all(_holds(labels.get(key), wanted) for key, wanted in selector.items())


def _holds(value: str | None, wanted: str) -> bool:
    is_excluded, wanted = wanted.startswith("!"), wanted.removeprefix("!")
    one_of = _ONE_OF.fullmatch(wanted)
    values = [each.strip() for each in one_of["values"].split(",")] if one_of else [wanted]
    return (value in values) != is_excluded
