"""`pilotfish drafter`: the versions of a drafter that learns from the traffic."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from pilotfish.cli.console import error_console, output_console
from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import AsJson, ConfigFile, Overrides
from pilotfish.config import load_config
from pilotfish.config.shipped_heads import head_folder
from pilotfish.errors import ConfigError, ModelError
from pilotfish.installation import require
from pilotfish.learning.facts import Change, Score, VersionFacts
from pilotfish.learning.record import request_digest
from pilotfish.learning.versions import Versions

drafter_app = typer.Typer(
    no_args_is_help=True, help="List, promote, roll back and forget what a drafter has learned from the traffic."
)


@drafter_app.command("list")
@fail_on_error()
def list_versions(config_file: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """List the versions that are kept, what they scored, which one serves and how that came.

    Scores are tokens a round, before and after, on texts that no version was trained on; kinds are requests whose
    prompts begin alike, and `data` is the head's own.

    [bold]Examples[/]

      pilotfish drafter list

      pilotfish drafter list --config pilotfish.yaml --json
    """
    versions = _versions(config_file, overrides)
    facts = {number: _facts(versions, number) for number in versions.numbers()}
    history, serving = versions.history(), versions.serving()
    if as_json:
        print(json.dumps(_as_json(serving, facts, history)))
        return
    table = Table("version", "from", "made", "learned", "tokens a round", "by kind", "verdict")
    table.add_row(_name(0, serving), "", "", "", "", "", "the configured head")
    for number, fact in facts.items():
        table.add_row(_name(number, serving), *_row(fact))
    output_console().print(table)
    if history:
        changes = Table("when", "change", "by", "reason")
        for change in history:
            who = "hand" if change.by_hand else "trainer"
            changes.add_row(_when(change.at), f"{change.from_version} to {change.to_version}", who, change.reason)
        output_console().print(changes)


@drafter_app.command()
@fail_on_error()
def promote(
    number: Annotated[int, typer.Argument(help="The version; 0: the configured head.", min=0)],
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Let a version serve. Engines take it up within seconds; the trainer does not roll it back by itself.

    [bold]Examples[/]

      pilotfish drafter promote 3

      pilotfish drafter promote 0                             the configured head
    """
    config = load_config(config_file, overrides or ())
    versions = _versions(config_file, overrides)
    versions.head_folder(number, head_folder(config.learning_head))
    versions.promote(number, "by hand", by_hand=True)
    _tell(as_json, f"Version {number} serves.", serving=number)


@drafter_app.command()
@fail_on_error()
def rollback(config_file: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Let the version serve again that served before.

    [bold]Examples[/]

      pilotfish drafter rollback

      pilotfish drafter rollback --config pilotfish.yaml
    """
    number = _versions(config_file, overrides).roll_back("by hand", by_hand=True)
    _tell(as_json, f"Version {number} serves.", serving=number)


@drafter_app.command()
@fail_on_error()
def forget(
    request_id: Annotated[str, typer.Argument(metavar="REQUEST_ID", help="As in the answer's header x-request-id.")],
    config_file: ConfigFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Delete the texts of a request that are kept to learn from, and name the versions that have learned from them, or
    were trained on from such a version.

    A version cannot forget a text: let one serve from before it, or `pilotfish drafter promote 0`. What is being
    written of the request, or trained, is dropped.

    [bold]Examples[/]

      pilotfish drafter forget req_4f6c0e1b
    """
    require("cryptography", "`pilotfish drafter forget`")
    from pilotfish.learning.ring import Ring

    config = load_config(config_file, overrides or ())
    learning = config.draft.learning
    ring = Ring(config.learning_folder / "ring", max_bytes=learning.max_bytes, max_age_s=learning.max_age_s, key=None)
    num_texts = ring.forget(request_id)
    versions = _versions(config_file, overrides)
    digest = request_digest(request_id)
    lineages = {number: versions.lineage(number) for number in versions.numbers()}
    known = [number for number, lineage in lineages.items() if _may_contain(lineage, digest)]
    message = f"Deleted {num_texts} texts of {request_id}."
    if known:
        before = next((number for number in lineages[known[0]] if number in lineages and number not in known), 0)
        message += (
            f" Versions that learned from it, by themselves or from the one before: {', '.join(map(str, known))}. "
            f"Version {before} did not: pilotfish drafter promote {before}"
        )
    elif not num_texts:
        message += " Is it what the answer's header x-request-id says? The `id` in an answer is another."
    _tell(as_json, message, num_texts=num_texts, versions=known)


def _may_contain(lineage: dict[int, VersionFacts], digest: str) -> bool:
    """Whether a version learned from a request, as far as the versions that it was trained on from are known."""
    is_whole = bool(lineage) and next(reversed(lineage.values())).parent == 0
    return not is_whole or any(digest in facts.learned_from for facts in lineage.values())


def _versions(config_file: Path | None, overrides: list[str] | None) -> Versions:
    config = load_config(config_file, overrides or ())
    if not config.learning_head:
        raise ConfigError(
            "no EAGLE-3 head drafts by this configuration: give the one that the services run with (--config, --set)"
        )
    return Versions(config.learning_folder)


def _facts(versions: Versions, number: int) -> VersionFacts | ModelError:
    try:
        return versions.facts(number)
    except ModelError as error:
        return error


def _row(facts: VersionFacts | ModelError) -> tuple[str, ...]:
    if isinstance(facts, ModelError):
        return ("", "", "", "", "", str(facts))
    learned = f"{facts.num_tokens:,} tokens of {facts.num_texts} texts in {facts.train_s:.0f} s"
    kinds = "\n".join(f"{kind}: {_in_words(score)}" for kind, score in facts.kinds.items())
    return str(facts.parent), _when(facts.created_at), learned, _in_words(facts.score), kinds, facts.verdict


def _in_words(score: Score | None) -> str:
    return "" if score is None else f"{score.before:.2f} -> {score.after:.2f} +- {score.error:.2f} ({score.num_texts})"


def _as_json(serving: int, facts: dict[int, VersionFacts | ModelError], history: list[Change]) -> dict[str, Any]:
    listed = [
        {"version": number, **({"error": str(fact)} if isinstance(fact, ModelError) else msgspec.to_builtins(fact))}
        for number, fact in facts.items()
    ]
    return {"serving": serving, "versions": listed, "history": [msgspec.to_builtins(change) for change in history]}


def _name(number: int, serving: int) -> str:
    return f"{number} (serves)" if number == serving else str(number)


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).isoformat(" ", "seconds")


def _tell(as_json: bool, message: str, **values: object) -> None:
    """For a program on standard output, for a person beside it."""
    if as_json:
        print(json.dumps(values))
    else:
        error_console().print(message, highlight=False, soft_wrap=True)
