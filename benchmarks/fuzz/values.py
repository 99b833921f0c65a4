"""JSON that strains whoever reads it: numbers at the edges of their types, odd texts, deep nesting, doubled keys."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

EDGES = [0, 2**31, 2**32, 2**53, 2**63, 2**64, 10**29, 0.5, -0.0, 1e-46, 5e-324, 3.5e38, 1.7e308, 123456.789]
NUMBERS = (
    st.integers() | st.floats() | st.builds(lambda edge, step: edge + step, st.sampled_from(EDGES), st.integers(-1, 1))
)
TEXTS = st.text(st.characters(exclude_categories=()), max_size=9) | st.sampled_from(["", "\ud800", "\x00", "a" * 300])
STRANGE = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
DEPTHS = (20, 400, 990, 20_000)
RAW = [
    *["NaN", "1e400", "-1e400", "0x1", "01", "1.", ".5", "+1", "-", "nul", "'a'", "//", ",", "{", "[", '"'],
    *('"\\ud800"', '"\\udfff\\ud800"', '"\\x"', '"\t"', '1, "n": 2, "n": 3', '"a", "messages": []', "9" * 400),
    *(opening * depth + "1" + closing * depth for opening, closing in ("[]", ('{"a":', "}")) for depth in DEPTHS),
    *('"' + character * size + '"' for character in "aé😀 " for size in (1000, 100_000)),
]
"""JSON, or what passes for it, as it is to be written."""
_PLACE = "\x00raw"
"""Where it is to stand."""


@st.composite
def planted(draw: st.DrawFn, document: Any, keys: Sequence[str]) -> Any:
    """One place of a document is another: its value, its key, whether it is there. keys: some that may be new."""
    document = copy.deepcopy(document)
    holders = [document]
    for holder in holders:  # which grows meanwhile
        values = holder.values() if isinstance(holder, dict) else holder
        holders += [value for value in values if isinstance(value, dict | list)]
    holder = draw(st.sampled_from(holders))
    places = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    strange = st.just(_PLACE) | STRANGE | STRANGE
    what = draw(st.integers(0, 4))
    if isinstance(holder, dict) and (what == 0 or not places):
        holder[draw(st.sampled_from(keys) | TEXTS)] = draw(strange)
    elif places:
        place = draw(st.sampled_from(places))
        if what == 1:
            del holder[place]
        else:
            holder[place] = [holder[place]] * draw(st.sampled_from([1, 2, 20])) if what == 2 else draw(strange)
    return document


@st.composite
def written(draw: st.DrawFn, document: Any) -> bytes:
    """The document as JSON."""
    text = json.dumps(document, ensure_ascii=draw(st.integers(0, 9)) > 0)
    place = json.dumps(_PLACE)
    if place in text:
        text = text.replace(place, draw(st.sampled_from(RAW)))
    return text.encode("utf-8", "surrogatepass")
