"""A stack that cannot start says why and leaves nothing; the one that can is in the end-to-end tests."""

import pytest

from pilotfish.config import load_config
from pilotfish.errors import UnavailableError
from pilotfish.launch.local_stack import LocalStack


@pytest.mark.usefixtures("no_child_left")
def test_a_service_that_cannot_start_is_named_with_its_reason() -> None:
    lines: list[str] = []
    config = load_config(overrides=["security.internal.token_file=/no/such/folder", "draft.num_replicas=0"])
    with (
        pytest.raises(UnavailableError, match=r"target_service ended with exit code 1: .*no/such/folder"),
        LocalStack(config, on_line=lambda _, line: lines.append(line)),
    ):
        pytest.fail("it must not start")
    assert any("/no/such/folder" in line for line in lines)
