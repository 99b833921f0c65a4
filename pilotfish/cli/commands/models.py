"""`pilotfish models list | pull | show`."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from pilotfish.cli.checks.architecture import probe_serving
from pilotfish.cli.console import error_console, output_console
from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import AsJson
from pilotfish.config import default_cache_dir
from pilotfish.errors import ModelNotFoundError
from pilotfish.models.store.catalogue import CATALOGUE, resolve
from pilotfish.models.store.folder import check_weights, count_parameters, folder_bytes, read_metadata
from pilotfish.models.store.model_store import ModelCache
from pilotfish.models.store.progress import PullProgress, PullStage
from pilotfish.models.store.pull import cached_folder, pull_model
from pilotfish.models.tokens.fingerprint import tokenizer_fingerprint

models_app = typer.Typer(help="List, pull and show models.", no_args_is_help=True)

CacheDir = Annotated[
    Path | None, typer.Option("--cache-dir", help="Cache folder; default $PILOTFISH_CACHE, else ~/.cache/pilotfish.")
]
ModelName = Annotated[str, typer.Argument(help="Catalogue name, hub id (org/name), local folder or GGUF file.")]


@models_app.command("list")
@fail_on_error()
def list_models(cache_dir: CacheDir = None, as_json: AsJson = False) -> None:
    """List the built-in models, and which of them are in the cache."""
    cache = _cache(cache_dir)
    rows: list[dict[str, Any]] = [
        {
            "name": model.name,
            "description": model.description,
            "size_bytes": model.model_bytes,
            "licence": model.licence,
            "in_cache": cache.is_complete(model.name),
        }
        for model in CATALOGUE.values()
    ]
    if as_json:
        _print_json(rows)
        return
    table = Table("name", "size", "licence", "in cache")
    for row in rows:
        table.add_row(row["name"], _megabytes(row["size_bytes"]), row["licence"], "yes" if row["in_cache"] else "no")
    output_console().print(table)


@models_app.command("pull")
@fail_on_error()
def pull(name: ModelName, cache_dir: CacheDir = None, as_json: AsJson = False) -> None:
    """Download a model into the cache. An interrupted pull continues where it stopped.

    [bold]Examples[/]

      pilotfish models pull smollm2-135m-instruct             from the catalogue (`pilotfish models list`)

      pilotfish models pull HuggingFaceTB/SmolLM2-360M-Instruct --cache-dir /mnt/models
    """
    folder = pull_with_progress(name, _cache(cache_dir).root)
    if as_json:
        _print_json({"name": name, "folder": str(folder)})
    else:
        output_console().print(f"{name} is in {folder}", soft_wrap=True)


@models_app.command("show")
@fail_on_error()
def show(name: ModelName, cache_dir: CacheDir = None, as_json: AsJson = False) -> None:
    """Describe a model on this machine: architecture, whether it can be served, context, parameters, tokenizer
    fingerprint, folder."""
    cache = _cache(cache_dir)
    folder = cached_folder(resolve(name), cache)
    if folder is None:
        raise ModelNotFoundError(f"{name} is not in the cache {cache.root}: run `pilotfish models pull {name}`")
    metadata = read_metadata(folder)
    facts: dict[str, Any] = {
        "name": name,
        "folder": str(folder),
        "architecture": metadata.model_type,
        "served": _served(folder),
        "num_parameters": count_parameters(folder),
        "size_bytes": folder_bytes(folder),
        "max_context_tokens": metadata.max_context_tokens,
        "vocab_size": metadata.vocab_size,
        "eos_token_ids": sorted(metadata.eos_token_ids),
        "tokenizer_fingerprint": tokenizer_fingerprint(folder),
    }
    if as_json:
        _print_json({**facts, "config": metadata.config})
        return
    table = Table(show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for key, value in facts.items():
        text = _megabytes(value) if key == "size_bytes" else f"{value:,}" if isinstance(value, int) else str(value)
        table.add_row(key, text)
    output_console().print(table)


def pull_with_progress(name: str, cache_dir: Path, adapter: str = "") -> Path:
    """`pull_model` with a bar for each stage on stderr; silent when there is nothing to do."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[size]}"), TimeElapsedColumn())
    bars = Progress(*columns, console=error_console())
    try:
        folder = pull_model(name, cache_dir, _StageBars(bars), adapter=adapter)
    finally:
        if bars.tasks:  # else it would print an empty line
            bars.stop()
    check_weights(folder)  # here, where it takes no second: a process that loads them starts for twenty
    return folder


class _StageBars:
    """A ProgressCallback: one bar for each stage of a pull, filled when the next one starts."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._stage: PullStage | None = None
        self._task_id = TaskID(0)

    def __call__(self, progress: PullProgress) -> None:
        if progress.stage is not self._stage:
            self._finish()
            self._stage = progress.stage
            if progress.stage is PullStage.DONE:
                return
            self._bars.start()
            self._task_id = self._bars.add_task(progress.stage.value, total=None, size="")
        if progress.total_bytes:
            size = f"{progress.completed_bytes / 1e6:.1f}/{progress.total_bytes / 1e6:.1f} MB"
            self._bars.update(self._task_id, total=progress.total_bytes, completed=progress.completed_bytes, size=size)

    def _finish(self) -> None:
        if self._stage is not None:
            self._bars.update(self._task_id, total=1, completed=1)


def _served(folder: Path) -> str:
    """On which path a start would serve the model, or why not; its weights are not read."""
    if find_spec("torch") is None:
        return "not known: this installation runs no model"
    try:
        verdict = probe_serving([str(folder)])[str(folder)]
    except OSError as error:
        return f"not known: {error}"
    return f"no: {verdict['refusal']}" if "refusal" in verdict else f"yes, {verdict['path']}"


def _cache(cache_dir: Path | None) -> ModelCache:
    return ModelCache(cache_dir or Path(default_cache_dir()))


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.0f} MB"


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=2))
