"""What holds for all tests: no timed examples, one thread of torch, and how they are spread over workers.

With `pytest -n 2` a file stays in one worker, and so does what shares a costly start.
"""

from __future__ import annotations

import sys
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

GROUPS = {
    "tests/e2e/pools/": "ray",  # one cluster at a time on a machine
    "tests/e2e/test_up_ray": "ray",
    "tests/e2e/standalone/": "standalone",  # one `pilotfish up`
    "tests/e2e/playground/": "playground",
    "tests/helm/": "helm",  # what was rendered is kept
    "tests/image/": "image",  # one wheel
}
"""What stays together, by how its path begins."""

# How long an example takes says what else the machine does. On top of the profile that Hypothesis chooses itself.
hypothesis.settings.register_profile(
    "untimed", hypothesis.settings.default, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")


class FileScheduling(LoadScopeScheduling):
    """The files in the order in which they are collected: the long ones are not left for the end."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return next((group for start, group in GROUPS.items() if file.startswith(start)), file)


@pytest.fixture(autouse=True)
def _one_torch_thread() -> None:
    """Whatever the test before has set: tiny models are no faster with more, and workers share the cores."""
    torch = sys.modules.get("torch")  # not every test needs it, and to import it takes seconds
    if torch is not None:
        torch.set_num_threads(1)


@pytest.hookimpl(optionalhook=True)  # there is none with `-p no:xdist`
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling:
    return FileScheduling(config, log)
