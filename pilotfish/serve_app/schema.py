"""Whether a file for `serve deploy` says what it seems to: Serve itself ignores keys that it does not know."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import ServeDeploySchema

from pilotfish.config import config_from_dict
from pilotfish.errors import ConfigError

MODELS: Mapping[str, type[BaseModel]] = {"autoscaling_config": AutoscalingConfig}
"""Of keys whose annotation in Serve's schema comes with a plain dictionary, or as one."""


def check_serve_file(values: Any) -> ServeDeploySchema:
    """The file as Serve reads it.

    Raises ConfigError that names every key which Serve or Pilotfish does not know, and every value that they refuse.
    """
    if not isinstance(values, dict):
        raise ConfigError("a file for `serve deploy` is a mapping with the key applications")
    if problems := list(_unknown_keys(ServeDeploySchema, values, "")):
        raise ConfigError("; ".join(problems))
    try:
        read = ServeDeploySchema.model_validate(values)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
        raise ConfigError("; ".join(lines)) from None
    for application in read.applications:
        config_from_dict(application.args, source=f"args of application {application.name}")
    return read


def _unknown_keys(model: type[BaseModel], values: Mapping[str, Any], path: str) -> Iterator[str]:
    """A line for each key under `path` that no field of the model is for, nested models included."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for key, value in values.items():
        where = f"{path}.{key}" if path else str(key)
        if key not in fields:
            similar = difflib.get_close_matches(str(key), fields, n=1)
            yield f"{where}: Ray Serve has no such key" + (f"; did you mean {similar[0]}?" if similar else "")
            continue
        within = MODELS.get(key) or next(_models(fields[key].annotation), None)
        if within is None:
            continue
        items = value if isinstance(value, list) else [value]
        for index, item in enumerate(items):
            if isinstance(item, dict):
                yield from _unknown_keys(within, item, f"{where}.{index}" if isinstance(value, list) else where)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Those in an annotation such as `list[Model] | dict | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
