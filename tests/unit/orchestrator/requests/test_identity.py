import pytest

from orchestrator.requests.identity import MAX_REQUEST_ID_CHARACTERS, RequestIdentity


@pytest.mark.parametrize("given", ["a", "7f3c-0001", "my request: 7", "~" * MAX_REQUEST_ID_CHARACTERS])
def test_a_callers_own_id_is_kept(given: str) -> None:
    assert RequestIdentity.of({"x-request-id": given}).headers["x-request-id"] == given


@pytest.mark.parametrize(
    "given", ["", "a\tb", "a\x1b[2J", "a\x7f", "caf\u00e9", "\u00a0", "x" * (MAX_REQUEST_ID_CHARACTERS + 1)]
)
def test_what_is_no_id_is_replaced(given: str) -> None:
    ids = {RequestIdentity.of({"x-request-id": given}).request_id for _ in range(2)}
    assert len(ids) == 2
    assert given not in ids
