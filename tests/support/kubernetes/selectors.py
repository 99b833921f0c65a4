"""Label and field selectors of lists and watches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Predicate = Callable[[Mapping[str, Any]], bool]

_COMMA = re.compile(r",(?![^()]*\))")
_SET = re.compile(r"(\S+) (in|notin) \((.*)\)")


def selector(labels: str, fields: str) -> Predicate:
    """Whether an object is selected, by the texts of `labelSelector` and `fieldSelector`.

    Of fields only `metadata.name` is known.
    """
    label_terms = [term.strip() for term in _COMMA.split(labels) if term.strip()]
    names = [term.partition("=")[2].lstrip("=") for term in fields.split(",") if term.startswith("metadata.name=")]

    def selects(item: Mapping[str, Any]) -> bool:
        metadata = item["metadata"]
        own = metadata.get("labels") or {}
        return all(_matches(term, own) for term in label_terms) and all(name == metadata["name"] for name in names)

    return selects


def _matches(term: str, labels: Mapping[str, str]) -> bool:
    of_set = _SET.fullmatch(term)
    if of_set:
        values = [value.strip() for value in of_set[3].split(",")]
        return (labels.get(of_set[1]) in values) == (of_set[2] == "in")
    if "!=" in term:
        key, _, value = term.partition("!=")
        return labels.get(key) != value
    if "=" in term:
        key, _, value = term.partition("=")
        return labels.get(key) == value.lstrip("=")
    if term.startswith("!"):
        return term[1:] not in labels
    return term in labels
