"""What two runs of tokens begin with alike."""

from __future__ import annotations

import pytest

from pilotfish.speculation.common_prefix import num_common_tokens


@pytest.mark.parametrize(
    ("first", "second", "num_common"),
    [
        ((1, 2, 3), (1, 2, 3), 3),
        ((1, 2, 3), (1, 2), 2),
        ((1, 2), (1, 2, 3), 2),
        ((1, 9, 3), (1, 2, 3), 1),  # what is alike behind a difference does not count
        ((9, 2), (1, 2), 0),
        ((), (1,), 0),
        ((), (), 0),
    ],
)
def test_tokens_count_up_to_the_first_that_differs(first, second, num_common) -> None:
    assert num_common_tokens(first, second) == num_common
