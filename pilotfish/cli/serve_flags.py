"""The flags of `pilotfish serve` that people type from memory: each is another way to say `--set KEY=VALUE`."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pilotfish.cli.roles import Role
from pilotfish.cli.speculative_config import speculative_settings
from pilotfish.security.api_key import digest_of

_PANEL = "Short for --set"


@dataclass(frozen=True)
class Flag:
    """A flag and the configuration key it sets."""

    key: str
    names: tuple[str, ...]
    """The flag's names for Typer; none: the argument MODEL."""
    kind: type = str
    settings: Callable[[Any], Mapping[str, object]] | None = None
    """What it sets besides or instead, by key; None: its own value at `key`."""
    help: str = ""

    @property
    def parameter(self) -> str:
        return max(self.names, key=len).lstrip("-").replace("-", "_") if self.names else "model"

    def annotation(self) -> object:
        text = self.help or f"{self.key}."
        if not self.names:
            return Annotated[str | None, typer.Argument(metavar="MODEL", help=text, show_default=False)]
        metavar = "N" if self.kind is int else "VALUE"
        return Annotated[
            self.kind | None, typer.Option(*self.names, metavar=metavar, help=text, rich_help_panel=_PANEL)
        ]

    def overrides(self, value: Any) -> Iterator[str]:
        """The flag's value as `--set` takes it. JSON is YAML."""
        values = {self.key: value} if self.settings is None else self.settings(value)
        for key, each in values.items():
            yield f"{key}={json.dumps(each)}"


def _model(name: str) -> Mapping[str, object]:
    if name in tuple(Role):
        raise typer.BadParameter(f"{name} is a service, not a model: `pilotfish service {name}`", param_hint="MODEL")
    return {"target.model": name}


def _api_keys(keys: list[str]) -> Mapping[str, object]:
    if not all(keys):
        raise typer.BadParameter("a key has at least one character", param_hint="--api-key")
    return {"security.public.api_key_sha256": [digest_of(key) for key in keys]}


def _lora(text: str) -> Mapping[str, object]:
    name, separator, folder = text.partition("=")
    if not separator or Path(text).is_dir():  # folders of training runs are called lr=0.1
        return {"target.lora": text}
    return {"target.lora": folder, "orchestrator.served_model_name": [name]}


FLAGS = (
    Flag(
        "target.model",
        (),
        settings=_model,
        help="target.model: a catalogue name, ORG/NAME@REVISION, a folder or a GGUF file.",
    ),
    Flag(
        "target.lora",
        ("--lora",),
        settings=_lora,
        help="target.lora: FOLDER, or NAME=FOLDER, which sets orchestrator.served_model_name as well.",
    ),
    Flag("orchestrator.host", ("--host",)),
    Flag("orchestrator.http.port", ("--port",), int),
    Flag(
        "orchestrator.served_model_name",
        ("--served-model-name",),
        list[str],
        help="orchestrator.served_model_name, and aliases.",
    ),
    Flag(
        "security.public.api_key_sha256",
        ("--api-key",),
        list[str],
        _api_keys,
        "security.public.api_key_sha256. Other users can see the key in the list of processes.",
    ),
    Flag(
        "target.engine.dtype",
        ("--dtype",),
        settings=lambda dtype: {} if dtype == "auto" else {"target.engine.dtype": dtype},  # vLLM's own default
    ),
    Flag("target.engine.quantization", ("--quantization",)),
    Flag("target.engine.max_context_tokens", ("--max-model-len",), int),
    Flag(
        "target.engine.gpu_memory_utilization",
        ("--gpu-memory-utilization",),
        float,
        lambda share: {"target.engine.gpu_memory_utilization": share, "target.engine.kv_cache_tokens": 0},
        "target.engine.gpu_memory_utilization: the KV cache takes what it leaves.",
    ),
    Flag("target.tensor_parallel_size", ("--tensor-parallel-size", "-tp"), int),
    Flag("orchestrator.chat_template", ("--chat-template",)),
    Flag(
        "orchestrator.generation_config",
        ("--generation-config",),
        settings=lambda name: {"orchestrator.generation_config": "none" if name == "vllm" else name},
    ),
    Flag("orchestrator.http.reasoning_parser", ("--reasoning-parser",)),
    Flag("orchestrator.http.tool_call_parser", ("--tool-call-parser",)),
    Flag(
        "draft.model",
        ("--draft-model",),
        settings=lambda name: {"draft.proposer": "model", "draft.model": name},
        help="draft.model, with draft.proposer model.",
    ),
    Flag(
        "orchestrator.speculation",
        ("--speculative-config",),
        settings=speculative_settings,
        help="""vLLM's JSON, such as '{"method": "ngram", "num_speculative_tokens": 4}'.""",
    ),
    Flag("emulation.profile", ("--emulate",), help="emulation.profile: a100-70b, h100-70b-tp4, cpu, instant, a file."),
)


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The command with all FLAGS. Its parameter `overrides` gets them, before what --set says."""

    @functools.wraps(command)
    def with_overrides(*, overrides: list[str] | None, **values: Any) -> None:
        given = [(flag, values.pop(flag.parameter)) for flag in FLAGS]
        settings = [text for flag, value in given if value not in (None, []) for text in flag.overrides(value)]
        command(overrides=settings + (overrides or []), **values)

    signature = inspect.signature(command, eval_str=True)
    parameters = [
        inspect.Parameter(flag.parameter, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=flag.annotation())
        for flag in FLAGS
    ]
    with_overrides.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*signature.parameters.values(), *parameters)
        ]
    )
    return with_overrides
