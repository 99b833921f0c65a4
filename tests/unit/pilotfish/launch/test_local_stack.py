"""A stack that cannot start says why and leaves nothing; the one that can is in the end-to-end tests."""

import sys
from pathlib import Path

import psutil
import pytest

from pilotfish.config import Config, load_config
from pilotfish.errors import UnavailableError
from pilotfish.launch import local_stack as local_stack_module
from pilotfish.launch.child import ChildSpec
from pilotfish.launch.local_stack import LocalStack
from pilotfish.launch.specs import Launch

SERVE = "import time; print('NAME ready on 127.0.0.1:7', flush=True); time.sleep(60)"


def small_launch(config: Config, folder: Path, *, standalone: bool) -> Launch:
    """Two processes that only say that they are ready."""
    assert standalone
    specs = [
        ChildSpec(
            name=name,
            argv=[sys.executable, "-c", SERVE.replace("NAME", name)],
            services=frozenset({name}),
            essential=False,
        )
        for name in ("target_service", "orchestrator")
    ]
    return Launch(config, specs, {})


def test_it_runs_for_as_long_as_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_stack_module, "prepare", small_launch)
    with LocalStack(Config()) as stack:
        assert stack.address == "127.0.0.1:7"
        assert stack.config.orchestrator.port == 0
        processes = [psutil.Process(stack.pid(name)) for name in ("target_service", "orchestrator")]
        assert all(process.is_running() for process in processes)
    assert not any(process.is_running() for process in processes)


@pytest.mark.usefixtures("no_child_left")
def test_a_service_that_cannot_start_is_named_with_its_reason() -> None:
    lines: list[str] = []
    config = load_config(overrides=["target.model=/no/such/folder", "draft.num_replicas=0"])
    with (
        pytest.raises(UnavailableError, match=r"target_service ended with exit code 1: .*no/such/folder"),
        LocalStack(config, on_line=lambda _, line: lines.append(line)),
    ):
        pytest.fail("it must not start")
    assert any("/no/such/folder" in line for line in lines)
