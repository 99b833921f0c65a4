"""What holds for all tests: few examples, untimed, one thread of torch, which are quick, how workers share them.

With `pytest -n 2` a file stays in one worker, and so does what shares a costly start.
"""

import sys
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from pilotfish.config import TargetConfig, default_cache_dir
from pilotfish.models.store.model_store import ModelCache

GROUPS = {
    "tests/conformance/": "conformance",  # one stack at a time
    "tests/e2e/pools/": "ray",  # one cluster at a time on a machine
    "tests/e2e/test_up_ray": "ray",
    "tests/e2e/standalone/": "standalone",  # one `pilotfish up`
    "tests/e2e/playground/": "playground",
    "tests/helm/": "helm",  # what was rendered is kept
    "tests/image/": "image",  # one wheel
}
"""What stays together, by how its path begins."""

UNIT = "tests/unit/"
LONG = (
    *("tests/conformance/", "tests/e2e/", "tests/integration/"),
    *(f"{UNIT}pilotfish/{name}/" for name in ("training", "parallel")),
    f"{UNIT}orchestrator/test_controller_simulation.py",
)
"""Run first, by how their path begins: a long file at the end would keep one worker busy and the others idle."""

NOT_QUICK = (
    *(f"{UNIT}pilotfish/{name}/" for name in ("cli", "engine", "launch", "models", "parallel", "training")),
    f"{UNIT}benchmarks/test_gpu_pools.py",
    f"{UNIT}pilotfish/examine/test_head_experiments.py",
    f"{UNIT}pilotfish/planning/",
    f"{UNIT}pilotfish/rpc/test_hosting.py",
    f"{UNIT}pilotfish/structured/test_guard",
    f"{UNIT}pilotfish/test_installation.py",
    f"{UNIT}orchestrator/test_controller_simulation.py",
    f"{UNIT}test_site.py",
)
"""Unit tests that run models, start processes or take long: `--quick` leaves them out, by how their path begins."""

# How long an example takes says what else the machine does. On top of the profile that Hypothesis chooses itself; fewer
# examples than its hundred, because the suite runs often and draws others each time.
hypothesis.settings.register_profile(
    "ours",
    hypothesis.settings.default,
    deadline=None,
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("ours")


class FileScheduling(LoadScopeScheduling):
    """The files in the order in which they are collected, which `pytest_collection_modifyitems` changes."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return next((group for start, group in GROUPS.items() if file.startswith(start)), file)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what NOT_QUICK in tests/conftest.py names")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Not even imported: a third of the time."""
    if not config.getoption("--quick"):
        return None
    path = collection_path.relative_to(config.rootpath).as_posix()
    return True if f"{path}/".startswith(NOT_QUICK) or path.startswith(NOT_QUICK) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.hookimpl(tryfirst=True)  # before fixtures of any scope
def pytest_runtest_setup() -> None:
    """One thread, whatever was set before: tiny models are no faster with more, and workers share the cores."""
    torch = sys.modules.get("torch")  # not every test needs it, and to import it takes seconds
    if torch is not None:
        torch.set_num_threads(1)


@pytest.hookimpl(optionalhook=True)  # there is none with `-p no:xdist`
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling:
    return FileScheduling(config, log)


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model's folder; skips where it was not pulled."""
    cache = ModelCache(Path(default_cache_dir()))
    name = TargetConfig.model
    if not cache.is_complete(name):
        pytest.skip(f"{name} is not in {cache.root}: run `pilotfish models pull {name}`")
    return cache.folder(name)
