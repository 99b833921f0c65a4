"""How tests are spread over the workers of `pytest -n`: file by file, and as one what shares a costly start."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

GROUPS = {
    "tests/e2e/pools/": "ray",  # one cluster at a time on a machine
    "tests/e2e/test_up_ray.py": "ray",
    "tests/e2e/standalone/": "standalone",  # one `pilotfish up`
    "tests/e2e/playground/": "playground",
    "tests/helm/": "helm",  # what was rendered is kept
    "tests/image/": "image",  # one wheel
}
"""What stays together, by how its path begins."""


class FileScheduling(LoadScopeScheduling):
    """The files in the order in which they are collected: the long ones are not left for the end."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return next((group for start, group in GROUPS.items() if file.startswith(start)), file)


@pytest.hookimpl(optionalhook=True)  # there is none with `-p no:xdist`
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling:
    return FileScheduling(config, log)
