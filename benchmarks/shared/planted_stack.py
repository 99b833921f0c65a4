"""A target and a draft service of random weights and planted agreement, with their orchestrators, on one device."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import shared.checkout  # noqa: F401  # finds tests.support
from prometheus_client.parser import text_string_to_metric_families
from shared.gpu_models import SHAPES

from pilotfish.child import tethered
from pilotfish.config import Config, config_to_yaml, load_config
from pilotfish.emulation.tokenizer import WORDS
from pilotfish.launch.local_stack import LocalStack
from pilotfish.launch.specs import Launch, free_ports
from pilotfish.launch.supervisor import Supervisor
from tests.support.service_process import ServiceProcess

PAIRS = {"llama-3.1-8b": "llama-3.2-1b", "tiny": "tiny-draft"}
"""Draft models by their targets."""
MAX_CONTEXT, KV_CACHE_TOKENS, MAX_SEQUENCES = 4096, 65_536, 32
_MODULE = "shared.planted_service"
_ROOT = Path(__file__).parents[2]


class PlantedStack(LocalStack):
    """A LocalStack whose replicas are shared.planted_service's. `steps` are what their engines have measured."""

    def _supervise(self, launch: Launch) -> Supervisor:
        specs = [
            spec
            if spec.name == "orchestrator"
            else dataclasses.replace(
                spec, argv=tethered(_MODULE, spec.name, "--config", str(Path(self._folder.name) / "config.yaml"))
            )
            for spec in launch.specs
        ]
        paths = [str(_ROOT / "benchmarks"), str(_ROOT), launch.environment.get("PYTHONPATH", "")]
        environment = launch.environment | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        return super()._supervise(dataclasses.replace(launch, specs=specs, environment=environment))

    @property
    def steps(self) -> dict[str, dict[str, Any]]:
        """What the engine of each role has written."""
        folder = Path(self.config.target.model).parent
        return {role: json.loads((folder / f"steps-{role}.json").read_text()) for role in ("target", "draft")}


def write_models(folder: Path, target: str, planted: dict[str, Any]) -> None:
    """Folders `target` and `draft`: configurations of the shapes, a tokenizer, and what is planted; no weights."""
    for role, shape in (("target", target), ("draft", PAIRS[target])):
        shutil.copytree(WORDS, folder / role)
        SHAPES[shape].save_pretrained(folder / role)
        (folder / role / "planted.json").write_text(json.dumps(planted), encoding="utf-8")


def stack_config(folder: Path, device: str, *, head: bool, extra: Sequence[str] = ()) -> Config:
    """Configuration of the models that write_models has written there, on one device. extra: settings that come on
    top."""
    on_gpu = device.startswith("cuda")
    engine = {
        "device": device,
        "kv_cache_tokens": KV_CACHE_TOKENS,
        "max_context_tokens": MAX_CONTEXT,
        "max_sequences": MAX_SEQUENCES,
        "num_threads": 0 if on_gpu else 1,
        "compile": on_gpu,
        "deterministic": False,
    }
    settings = [f"{role}.engine.{key}={value}" for role in ("target", "draft") for key, value in engine.items()]
    drafter = ["eagle3", f"target.drafter.model={folder / 'target'}"] if head else ["none"]
    settings += [
        f"target.model={folder / 'target'}",
        f"draft.model={folder / 'draft'}",
        "draft.proposer=model",
        "target.drafter.lookup=none",
        f"target.drafter.proposer={drafter[0]}",
        *drafter[1:],
        "orchestrator.speculation.tree_nodes=0",
        "orchestrator.speculation.draft_ahead=off",
    ]
    return load_config(overrides=[*settings, *extra])


@dataclass(frozen=True, slots=True)
class Front:
    """An orchestrator."""

    address: str
    http_url: str

    async def counts(self) -> Counter[str]:
        """Its counters by name; with a label, by `name/value`."""
        return await asyncio.to_thread(self._counts)

    def _counts(self) -> Counter[str]:
        with urllib.request.urlopen(f"{self.http_url}/metrics", timeout=10) as response:
            text = response.read().decode()
        counts: Counter[str] = Counter()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if family.type == "counter" and sample.name.endswith("_total"):
                    name = sample.name.removesuffix("_total").split(":")[-1].removeprefix("pilotfish_")
                    label = next((value for key, value in sample.labels.items() if key != "model_name"), "")
                    counts[f"{name}/{label}" if label else name] += sample.value
        return counts


@contextlib.contextmanager
def front(stack: LocalStack, folder: Path, draft_ahead: str) -> Iterator[Front]:
    """Another orchestrator over the stack's replicas. Raises UnavailableError when it does not start."""
    speculation = dataclasses.replace(stack.config.orchestrator.speculation, draft_ahead=draft_ahead)
    section = dataclasses.replace(stack.config.orchestrator, speculation=speculation)
    path = folder / f"{draft_ahead}.yaml"
    path.write_text(config_to_yaml(dataclasses.replace(stack.config, orchestrator=section)), encoding="utf-8")
    (port,) = free_ports(1)
    with ServiceProcess("orchestrator", ["--config", str(path), "--set", f"orchestrator.http.port={port}"]) as process:
        yield Front(process.address, f"http://127.0.0.1:{port}")


def show_line(name: str, line: str) -> None:
    """What a service says, for people."""
    print(f"{name}: {line}", file=sys.stderr, flush=True)
