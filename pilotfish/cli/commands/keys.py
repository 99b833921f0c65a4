"""`pilotfish keys`: API keys of the public API."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from pilotfish.cli.console import error_console, output_console
from pilotfish.cli.errors import fail_on_error
from pilotfish.cli.options import AsJson
from pilotfish.errors import ConfigError
from pilotfish.security.api_key import ApiKey, KeyLimits, digest_of, new_secret
from pilotfish.security.api_key_file import read_keys, write_keys

keys_app = typer.Typer(no_args_is_help=True, help="Create, list and revoke API keys of the public API.")

KeyFile = Annotated[Path, typer.Option("--file", "-f", metavar="FILE", help="As security.public.api_keys_file.")]
Name = Annotated[str, typer.Argument(help="Owner of the key: a person, a team, a service.")]
DEFAULT_FILE = Path("api-keys.yaml")


@keys_app.command()
@fail_on_error()
def create(
    name: Name,
    file: KeyFile = DEFAULT_FILE,
    max_concurrent_requests: Annotated[
        int, typer.Option("--max-concurrent-requests", help="Served or waiting at once; 0: no limit.", min=0)
    ] = 0,
    requests_per_min: Annotated[int, typer.Option("--requests-per-min", help="0: no limit.", min=0)] = 0,
    tokens_per_min: Annotated[
        int, typer.Option("--tokens-per-min", help="Prompts and answers together; 0: no limit.", min=0)
    ] = 0,
    no_learn: Annotated[
        bool, typer.Option("--no-learn", help="Nothing of its requests is kept to train the drafter.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a key, add its hash to the file and print the key, which is shown only once.

    A running orchestrator that reads the file accepts the key at once.

    [bold]Examples[/]

      pilotfish keys create ada

      pilotfish keys create batch --requests-per-min 60 --tokens-per-min 100000 --file /etc/pilotfish/api-keys.yaml

      pilotfish up --set security.public.api_keys_file=$PWD/api-keys.yaml
    """
    keys = _existing(file)
    if any(key.name == name for key in keys):
        raise ConfigError(f"{file} has a key {name!r} already: revoke it first, or take another name")
    secret = new_secret()
    limits = KeyLimits(
        max_concurrent_requests=max_concurrent_requests,
        requests_per_min=requests_per_min,
        tokens_per_min=tokens_per_min,
    )
    write_keys(file, (*keys, ApiKey(name=name, sha256=digest_of(secret), limits=limits, learn=not no_learn)))
    if as_json:
        print(json.dumps({"name": name, "key": secret, "file": str(file)}))
        return
    print(secret)
    notes = error_console()
    notes.print(f"Added {name} to {file}. Keep the key now: only its hash is stored.", soft_wrap=True, highlight=False)
    notes.print(
        f"Serve with it: pilotfish up --set security.public.api_keys_file={file}", soft_wrap=True, highlight=False
    )
    notes.print(
        "Ask with it: PILOTFISH_API_KEY=... pilotfish generate ..., or as OPENAI_API_KEY of OpenAI's clients",
        soft_wrap=True,
        highlight=False,
    )


@keys_app.command("list")
@fail_on_error()
def list_keys(file: KeyFile = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """List the names and limits of the keys in the file."""
    keys = read_keys(str(file))
    if as_json:
        listed = [{"name": key.name, **dataclasses.asdict(key.limits), "learn": key.learn} for key in keys]
        print(json.dumps({"keys": listed}))
        return
    table = Table("name", "requests at once", "requests/min", "tokens/min", "learned from")
    for key in keys:
        limits = key.limits
        values = (limits.max_concurrent_requests, limits.requests_per_min, limits.tokens_per_min)
        table.add_row(key.name, *(str(value or "no limit") for value in values), "yes" if key.learn else "never")
    output_console().print(table)


@keys_app.command()
@fail_on_error()
def revoke(name: Name, file: KeyFile = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """Remove a key from the file. A running orchestrator refuses it from the next request on."""
    keys = read_keys(str(file))
    kept = tuple(key for key in keys if key.name != name)
    if len(kept) == len(keys):
        raise ConfigError(f"{file} has no key {name!r}; it has {', '.join(key.name for key in keys) or 'none'}")
    write_keys(file, kept)
    if as_json:
        print(json.dumps({"name": name, "file": str(file)}))
    else:
        error_console().print(f"Revoked {name}.", highlight=False)


def _existing(file: Path) -> tuple[ApiKey, ...]:
    return read_keys(str(file)) if file.exists() else ()
