import pytest

from pilotfish.security.bearer import bearer_header, bearer_of


@pytest.mark.parametrize(
    ("header", "secret"),
    [("Bearer pf-1", "pf-1"), ("bearer  pf-1 ", "pf-1"), ("pf-1", ""), ("Basic pf-1", ""), ("", ""), ("Bearer", "")],
)
def test_only_bearers_are_understood(header: str, secret: str) -> None:
    assert bearer_of(header) == secret


def test_what_is_shown_is_read() -> None:
    assert bearer_of(bearer_header("pf-1")) == "pf-1"
