"""What people copy works: the values and files that pages name, and the commands that pods run."""

import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from pilotfish.cli.main import app
from tests.helm.conftest import Objects, only

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")


HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
CHART_VALUES = set(yaml.safe_load((ROOT / "helm" / "pilotfish" / "values.yaml").read_text(encoding="utf-8")))

GPU_VALUES = ROOT / "helm" / "pilotfish" / "ci" / "gpu-values.yaml"
GIB = {"Mi": 2**-10, "Gi": 1}
WEIGHTS_GIB = 141e9 / 2**30
"""Of the page's model, in bfloat16."""


def helm_commands(page: str) -> list[list[str]]:
    """What the page says to type that renders the chart, as a shell splits it."""
    lines = re.findall(r"^ *(helm4? (?:install|upgrade|template) .*)$", page, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in (*lines, *re.findall(r"`(helm4? template .*?)`", page))]


def rendered(helm: Any, words: list[str], values: Path) -> Objects:
    """The objects of a command; `values.yaml` is the reader's copy."""
    _, _, release, chart, *options = words
    assert (release, chart) == ("pilotfish", "helm/pilotfish")
    command = re.sub("--(wait|install|reset-values)", "", " ".join(options))
    files = [
        str(values if word == "values.yaml" else ROOT / word) if word.endswith(".yaml") else word
        for word in re.sub(r"--(timeout|namespace) \S+", "", command).split()
    ]
    found: Objects = helm.template(*files)
    return found


def gib(size: str) -> float:
    return float(size[:-2]) * GIB[size[-2:]]


def test_the_page_shows_the_values_file_as_it_is() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert GPU_VALUES.read_text() in [textwrap.dedent(block) for block in blocks]


@pytest.mark.parametrize("page", ["README.md", "docs/kubernetes.md"])
def test_the_commands_of_a_page_render(helm: Any, page: str) -> None:
    commands = helm_commands((ROOT / page).read_text(encoding="utf-8"))
    assert commands
    for words in commands:
        assert rendered(helm, words, GPU_VALUES), words


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_the_values_of_how_to_pages_render(helm: Any, page: Path, tmp_path: Path) -> None:
    """And say something: without them another release would be installed."""
    text = page.read_text(encoding="utf-8")
    blocks = [textwrap.dedent(block) for block in re.findall(r"^ *```yaml\n(.*?)```", text, re.DOTALL | re.MULTILINE)]
    values = [block for block in blocks if set(yaml.safe_load(block)) <= CHART_VALUES]
    for number, block in enumerate(values):
        file = tmp_path / f"{number}.yaml"
        file.write_text(block)
        objects = helm.template("--values", str(GPU_VALUES), "--values", str(file))
        assert objects != helm.template("--values", str(GPU_VALUES)), block
    for words in helm_commands(text):
        assert rendered(helm, words, GPU_VALUES), words


def test_a_70b_starts_as_the_page_says(helm: Any) -> None:
    """Memory, shared memory, time to start and KV cache of every command of the page that takes its values."""
    commands = [words for words in helm_commands(PAGE) if "values.yaml" in words]
    assert {words[1] for words in commands} == {"install", "upgrade"}
    for words in commands:
        objects = rendered(helm, words, GPU_VALUES)
        for pool, gpus in (("target", "4"), ("draft", "1")):
            pod, config = pod_and_config(objects, pool)
            (container,) = pod["containers"]
            assert container["resources"]["limits"]["nvidia.com/gpu"] == gpus
            assert container["image"] == "registry.example.com/pilotfish:0.2.0"
            assert list(pod["nodeSelector"]) == ["nvidia.com/gpu.product"]
            assert config[pool]["engine"] == {"device": "cuda", "kv_cache_tokens": 0}
            memory = gib(container["resources"]["limits"]["memory"])
            shm = next(each["emptyDir"]["sizeLimit"] for each in pod["volumes"] if each["name"] == "dshm")
            assert gib(shm) < memory / 2, "/dev/shm is of the pod's memory"
            if pool == "target":
                assert memory > WEIGHTS_GIB, "the pages of the files that ranks read count as the pod's"
                assert gib(shm) >= 4 * int(gpus), "NCCL's"
                if probe := container.get("startupProbe"):  # Ray waits for as long as it takes
                    budget_s = probe["periodSeconds"] * probe["failureThreshold"]
                    timeout_s = 60 * int(words[words.index("--timeout") + 1].removesuffix("m"))
                    assert timeout_s > budget_s >= WEIGHTS_GIB * 2**30 / 25e6, "at 25 MB/s"


def pod_and_config(objects: Objects, pool: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of a pool, in either mode."""
    for each in objects:
        if each["kind"] == "RayService":
            groups = {group["groupName"]: group for group in each["spec"]["rayClusterConfig"]["workerGroupSpecs"]}
            applications = yaml.safe_load(each["spec"]["serveConfigV2"])["applications"]
            (config,) = (one["args"] for one in applications if one["name"] == f"pilotfish-{pool}")
            return groups[pool]["template"]["spec"], config
    deployment = only(objects, "Deployment", f"pilotfish-{pool}")
    return deployment["spec"]["template"]["spec"], yaml.safe_load(only(objects, "ConfigMap")["data"]["config.yaml"])


def test_the_draft_pool_for_vllm_renders(helm: Any) -> None:
    objects = helm.template("--values", str(ROOT / "examples" / "vllm" / "values.yaml"))
    assert [each["metadata"]["name"] for each in objects if each["kind"] == "Deployment"] == ["pilotfish-draft"]


@pytest.mark.parametrize(
    ("values", "name"),
    [("default", "pilotfish-test"), ("draft-pool", "pilotfish-test"), ("extras", "pilotfish-target")],
)
def test_pilotfish_understands_the_arguments_of_pods(helm: Any, values: str, name: str) -> None:
    (pod,) = (
        each["spec"].get("template", each)["spec"]
        for each in (helm.objects("default", True) if values == "extras" else helm.objects(values, False))
        if each["metadata"]["name"] == name and each["kind"] in ("Pod", "Deployment")
    )
    command, *arguments = pod["containers"][0]["args"]
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    with commands[command].make_context(command, arguments) as context:  # exits on wrong usage
        assert context.params


def test_the_flagships_values_put_its_head_into_the_draft_pool(helm: Any) -> None:
    flagship = ROOT / "examples" / "flagship" / "values.yaml"
    objects = helm.template("--values", str(GPU_VALUES), "--values", str(flagship))
    config = yaml.safe_load(only(objects, "ConfigMap")["data"]["config.yaml"])
    assert (config["draft"]["proposer"], config["target"]["drafter"]["proposer"]) == ("eagle3", "none")
    assert config["target"]["tensor_parallel_size"] == 4
    assert config["orchestrator"]["draft_addresses"] == ["dns:///pilotfish-draft:50062"]
