"""One `pilotfish up` with its default configuration for all that only asks it."""

from collections.abc import Callable

import pytest


@pytest.fixture(scope="package")
def up(start_up: Callable):
    return start_up()
