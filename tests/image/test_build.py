"""The image, built for real and run as its user, who cannot write its root: PILOTFISH_TEST_IMAGE_BASE names the base,
buildah builds.

Without a registry: a root file system of Debian 12 (`debootstrap --variant=minbase --include=ca-certificates,python3`)
with the machine's own certificates and pip.conf, `FROM scratch` and `ADD`.

PILOTFISH_TEST_IMAGE names an image of all roles that is built already: it is run, with the default model of this
machine's cache besides.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pilotfish.config import default_cache_dir

ROOT = Path(__file__).parents[2]
BASE = os.environ.get("PILOTFISH_TEST_IMAGE_BASE")
IMAGE = os.environ.get("PILOTFISH_TEST_IMAGE")
TAG = IMAGE or "localhost/pilotfish:test"
# In a container engine's absence: no daemon, no namespaces.
ENVIRONMENT = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}

pytestmark = [
    pytest.mark.skipif(
        not (BASE or IMAGE) or not shutil.which("buildah"), reason="PILOTFISH_TEST_IMAGE_BASE names no base image"
    ),
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
    """One made of the image that is named, else of one with the router's packages on what a GPU's image stands on."""
    if not IMAGE:
        options = [f"--build-arg={each}" for each in (f"BASE={BASE}", "ACCELERATOR=cuda", "ROLE=router")]
        buildah("build", "--format=docker", *options, f"--tag={TAG}", ".")
    name = buildah("from", "--pull-never", TAG)
    yield name
    buildah("rm", name)
    if not IMAGE:
        buildah("rmi", TAG)


READ_ONLY = """
set -eu
mount --bind "$ROOT" "$ROOT"
mount -o remount,bind,ro "$ROOT"
mount -t proc proc "$ROOT/proc"
mount --rbind /sys "$ROOT/sys"
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs -o mode=1777 tmp "$ROOT/tmp"
mount -t tmpfs -o uid=10001,gid=10001 cache "$ROOT$CACHE"
if [ -d "$TRITON" ]; then mkdir "$ROOT/tmp/triton"; mount --bind "$TRITON" "$ROOT/tmp/triton"; fi
if [ -d "$MODELS" ]; then mkdir "$ROOT$CACHE/models"; mount --bind "$MODELS" "$ROOT$CACHE/models"; fi
cd "$ROOT"
exec setpriv --no-new-privs chroot --userspec="$USER" . "$@"
"""
"""What `docker run --read-only --tmpfs /tmp` does, with the volume of the image, and this machine's models in it.
Triton, which only an image of all roles has, is lent to another."""


class Image:
    """The container's files and the image's settings, as a container engine would start it."""

    def __init__(self, container: str, triton: Path) -> None:
        self._settings = json.loads(buildah("inspect", container))["Docker"]["config"]
        (cache,) = self._settings["Volumes"]
        self._options: dict[str, Any] = {
            "env": {
                **os.environ,
                "ROOT": buildah("mount", container),
                "CACHE": cache,
                "MODELS": f"{default_cache_dir()}/models",
                "TRITON": str(triton),
                "USER": self._settings["User"],
            },
            "stdout": subprocess.PIPE,
            "text": True,
        }

    def command(self, *arguments: str) -> list[str]:
        """That runs `arguments` in the image's environment."""
        environment = ["env", "-i", f"--chdir={self._settings['WorkingDir']}", *self._settings["Env"]]
        return ["unshare", "--mount", "--pid", "--fork", "sh", "-c", READ_ONLY, "sh", *environment, *arguments]

    def run(self, script: str) -> str:
        """What a shell script says."""
        done = subprocess.run(self.command("sh", "-c", script), timeout=60, check=True, **self._options)
        return str(done.stdout).strip()

    @contextlib.contextmanager
    def serving(self, *arguments: str) -> Iterator[str]:
        """A service, and the line that it says when it is ready."""
        settings = [
            *("--set", "security.internal.allow_unauthenticated=true", "--set", "security.internal.token_file=''"),
        ]
        command = self.command(*self._settings["Entrypoint"], "service", *arguments, *settings)
        with subprocess.Popen(command, start_new_session=True, **self._options) as process:
            try:
                assert process.stdout is not None
                yield process.stdout.readline()
            finally:
                os.killpg(process.pid, signal.SIGTERM)
        assert process.returncode == 0


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The locked Triton, for an image without; an empty path if the image has it."""
    if IMAGE:
        return Path()
    locked = re.search(r"^triton==.*?(?=^\S)", (ROOT / "requirements.lock").read_text(), re.DOTALL | re.MULTILINE)
    assert locked is not None
    folder = tmp_path_factory.mktemp("triton")
    (folder / "lock").write_text(locked[0])
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*command, "--dest", folder, "--requirement", folder / "lock"], check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "packages")
    return folder / "packages"


@pytest.fixture(scope="module")
def image(container: str, triton: Path) -> Image:
    return Image(container, triton)


def test_its_user_may_write_to_the_cache_and_to_tmp_only(image: Image) -> None:
    said = image.run(
        "id -u; cd /var/lib/pilotfish; touch x 2>&1 || touch $PILOTFISH_CACHE/x /tmp/x; pilotfish --version"
    )
    user, refusal, version = said.splitlines()
    assert user == "10001"
    assert refusal.endswith("Read-only file system")
    assert version.startswith("pilotfish ")


COMPILE = """
export TRITON_LIBCUDA_PATH=/tmp/driver TRITON_CACHE_DIR=/tmp/kernels PYTHONPATH=/tmp/triton
mkdir /tmp/driver && python - <<'END'
import pathlib, re, subprocess
import triton
source = pathlib.Path(triton.__file__).parent / "backends/nvidia/driver.c"
functions = sorted(set(re.findall(r"\\bcu[A-Z]\\w*(?=\\()", source.read_text())))
stub = "\\n".join(f"int {name}(void) {{ return 0; }}" for name in functions)
subprocess.run("gcc -x c - -shared -o /tmp/driver/libcuda.so.1".split(), input=stub, text=True, check=True)
from triton.backends.nvidia.driver import CudaUtils
print("launches" if callable(CudaUtils().launch) else "")
END
"""
"""What Triton compiles at its first kernel, against Python.h: the functions that load and launch kernels. The driver's
library is a stub, as there is no GPU."""


def test_its_user_compiles_what_triton_does(image: Image) -> None:
    assert image.run(f"export LD_LIBRARY_PATH=/tmp/driver; {COMPILE}") == "launches"


@pytest.mark.parametrize(
    "engines",
    [
        pytest.param("emulation.profile=instant", id="emulated"),
        # The draft service's drafts, not those of a head in the target.
        pytest.param(
            "target.drafter.proposer=none", id="real", marks=pytest.mark.skipif(not IMAGE, reason="needs torch")
        ),
    ],
)
def test_an_answer_is_streamed_from_services_of_the_image(image: Image, engines: str) -> None:
    with contextlib.ExitStack() as stack:
        orchestrator = ["orchestrator", "--set", "orchestrator.port=0", "--set", "orchestrator.host=127.0.0.1"]
        for role in ("target", "draft"):
            ready = stack.enter_context(
                image.serving(role, "--set", engines, "--set", f"{role}.port=0", "--set", f"{role}.host=127.0.0.1")
            )
            address = ready.split(" ready on ")[1].split()[0]
            orchestrator += ["--set", f"orchestrator.{role}_addresses=[{address}]"]
        url = re.findall(r"http://[\d.:]+", stack.enter_context(image.serving(*orchestrator, "--set", engines)))[0]
        body = {"prompt": "a b c", "max_tokens": 40, "stream": True, "speculation": {"mode": "on"}}
        response = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    *_, last, end = response.text.removesuffix("\n\n").split("\n\n")
    assert end == "data: [DONE]"
    assert json.loads(last.removeprefix("data: "))["choices"][0]["speculation"]["report"]["num_draft_tokens"] > 0
