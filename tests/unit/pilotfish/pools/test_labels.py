"""Label selectors mean what they mean to Ray."""

import pytest

from pilotfish.pools.capacity import matches

LABELS = {"pool": "draft", "ray.io/accelerator-type": "L4"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, True),
        ({"pool": "draft"}, True),
        ({"pool": "target"}, False),
        ({"pool": "!target"}, True),
        ({"pool": "!draft"}, False),
        ({"ray.io/accelerator-type": "in(A10G, L4)"}, True),
        ({"ray.io/accelerator-type": "in(A10G,H100)"}, False),
        ({"ray.io/accelerator-type": "!in(A10G,L4)"}, False),
        ({"zone": "!a"}, True),
        ({"zone": "a"}, False),
        ({"pool": "draft", "zone": "a"}, False),
    ],
)
def test_matches(selector: dict[str, str], expected: bool) -> None:
    assert matches(LABELS, selector) is expected
