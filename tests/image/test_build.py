"""The image, built for real and run as its user: what PILOTFISH_TEST_IMAGE_BASE names is the base, buildah the builder.

Without a registry: a root file system of Debian 12 (`debootstrap --variant=minbase --include=ca-certificates,python3`)
with the machine's own certificates and pip.conf, `FROM scratch` and `ADD`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
BASE = os.environ.get("PILOTFISH_TEST_IMAGE_BASE")
TAG = "localhost/pilotfish:test"
# In a container engine's absence: no daemon, no namespaces.
ENVIRONMENT = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}

pytestmark = [
    pytest.mark.skipif(not BASE or not shutil.which("buildah"), reason="PILOTFISH_TEST_IMAGE_BASE names no base image"),
    pytest.mark.timeout(900),
]


def buildah(*arguments: str) -> str:
    done = subprocess.run(
        ["buildah", *arguments], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.fixture(scope="module")
def container() -> Iterator[str]:
    """One made of the router's image."""
    options = [f"--build-arg={each}" for each in (f"BASE={BASE}", "ACCELERATOR=cpu", "ROLE=router")]
    buildah("build", "--format=docker", *options, f"--tag={TAG}", ".")
    name = buildah("from", "--pull-never", TAG)
    yield name
    buildah("rm", name)
    buildah("rmi", TAG)


@contextlib.contextmanager
def running(container: str, *arguments: str) -> Iterator[str]:
    """A service in the container, and the line that it says when it is ready."""
    settings = ["--set", "security.internal.allow_unauthenticated=true", "--set", "security.internal.token_file=''"]
    command = ["buildah", "run", container, "--", "pilotfish", "service", *arguments, *settings]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline()
        finally:
            os.killpg(process.pid, signal.SIGTERM)


def test_it_runs_as_its_user_who_may_write_to_the_cache_only(container: str) -> None:
    said = buildah("run", container, "--", "sh", "-c", "id -u; ls -l /opt | grep -c pilotfish; touch /opt/x || echo no")
    assert said.split() == ["10001", "1", "no"]
    assert buildah("run", container, "--", "sh", "-c", "touch $PILOTFISH_CACHE/x && pilotfish --version")


def test_an_answer_is_streamed_from_services_of_the_image(container: str) -> None:
    emulated = ["--set", "emulation.profile=instant"]
    with running(container, "target", *emulated, "--set", "target.port=0", "--set", "target.host=127.0.0.1") as ready:
        address = ready.split(" ready on ")[1].split()[0]
        orchestrator = [
            *("--set", f"orchestrator.target_addresses=[{address}]", "--set", "orchestrator.draft_addresses=[]"),
            *("--set", "orchestrator.port=0", "--set", "orchestrator.host=127.0.0.1"),
        ]
        with running(container, "orchestrator", *emulated, *orchestrator) as ready:
            url = re.findall(r"http://[\d.:]+", ready)[0]
            body = {"prompt": "a b c", "max_tokens": 8, "stream": True}
            response = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    assert response.text.endswith("data: [DONE]\n\n")
